package hostlink

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/musterhq/muster/internal/bus"
	"github.com/musterhq/muster/internal/fleet/host"
	"github.com/musterhq/muster/internal/id"
)

// sysTimeout is how long a NATS server has to respond to a question about its connections. If the server has stopped,
// the request fails at once.
const sysTimeout = 2 * time.Second

// alive reports whether the NATS server of a connection still has that connection.
func (l *Link) alive(ctx context.Context, c host.Conn) (bool, error) {
	var reply struct {
		Data *struct {
			Conns []struct {
				CID uint64 `json:"cid"`
			} `json:"connections"`
		} `json:"data"`
		Error *server.ApiError `json:"error"`
	}
	gone, err := l.request(ctx, c.Server, "CONNZ", server.ConnzOptions{CID: c.Client}, &reply)
	if err != nil || gone {
		return false, err
	}
	if reply.Error != nil {
		return false, fmt.Errorf("NATS server %s: %s", c.Server, reply.Error.Description)
	}
	return reply.Data != nil && len(reply.Data.Conns) > 0, nil
}

// kick closes a connection. It is no error if the connection has ended already.
func (l *Link) kick(ctx context.Context, c host.Conn) error {
	var reply struct{}
	_, err := l.request(ctx, c.Server, "KICK", server.KickClientReq{CID: c.Client}, &reply)
	return err
}

// request sends a request to one NATS server. gone is true if that server no longer exists.
func (l *Link) request(ctx context.Context, ns, what string, req, reply any) (gone bool, err error) {
	data, err := json.Marshal(req)
	if err != nil {
		return false, err
	}
	ctx, cancel := context.WithTimeout(ctx, sysTimeout)
	defer cancel()
	m, err := l.sys.RequestWithContext(ctx, "$SYS.REQ.SERVER."+ns+"."+what, data)
	if errors.Is(err, nats.ErrNoResponders) {
		return true, nil
	}
	if err != nil {
		return false, fmt.Errorf("request to NATS server %s: %w", ns, err)
	}
	return false, json.Unmarshal(m.Data, reply)
}

// handleDisconnect records the end of a host's connection.
func (l *Link) handleDisconnect(ctx context.Context, m *nats.Msg) {
	var e server.DisconnectEventMsg
	if json.Unmarshal(m.Data, &e) != nil {
		return
	}
	h, err := id.Parse[id.Host](e.Client.User)
	if err != nil {
		return // a connection of the platform itself
	}
	was, err := l.agents.CloseSession(ctx, h, e.Server.ID, e.Client.ID)
	if err != nil {
		l.log.Error("cannot note that a host disconnected", "host", h, "err", err)
		return
	}
	if was {
		l.log.Info("host disconnected", "host", h, "why", e.Reason)
	}
}

// watchKeys closes connections as soon as their keys are revoked.
func (l *Link) watchKeys() {
	changes := l.bus.Watch(l.ctx, bus.AllKeys)
	l.loops.Go(func() {
		for range changes {
			l.closeUnwelcome(l.ctx)
		}
	})
}

// closeUnwelcome closes all connections whose keys are revoked. It runs on every revocation and also periodically, in
// case a message is lost or a connection is made during the revocation.
func (l *Link) closeUnwelcome(ctx context.Context) {
	hosts, err := l.agents.UnwelcomeHosts(ctx)
	if err != nil {
		if ctx.Err() == nil {
			l.log.Error("cannot look for revoked connections", "err", err)
		}
		return
	}
	for _, u := range hosts {
		if err := l.kick(ctx, u.Conn); err != nil {
			l.log.Error("cannot close a revoked connection", "host", u.Host, "err", err)
			continue
		}
		if _, err := l.agents.CloseSession(ctx, u.Host, u.Conn.Server, u.Conn.Client); err != nil {
			l.log.Error("cannot note a closed connection", "host", u.Host, "err", err)
		}
		l.log.Info("closed the connection of a revoked key", "host", u.Host)
	}
}

// alert raises an alert about a host; see host.Agents.Alert.
func (l *Link) alert(ctx context.Context, h id.Host, v host.Alert) {
	if err := l.agents.Alert(ctx, h, v); err != nil {
		l.log.Error("cannot raise an alert", "host", h, "what", v.Action, "err", err)
	}
}
