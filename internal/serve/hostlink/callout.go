package hostlink

import (
	"context"
	"encoding/base64"
	"errors"
	"time"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nats.go"

	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/fleet/host"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/text"
)

const (
	// connectWait is how long an agent of an earlier version waits until its connection is authorised.
	connectWait = 4500 * time.Millisecond
	// authTimeout is how long the NATS server waits until a connection is authorised, in seconds.
	authTimeout = 15
)

// errBusy refuses a connection because too many others are waiting. Agents try again, less and less often.
var errBusy = errors.New("too many connections are being made")

// refuseConnection refuses a connection without looking at it. NATS closes it; the agent waits for longer than the time
// after which there is room, and then tries again.
func (l *Link) refuseConnection(m *nats.Msg, _ time.Duration) {
	req, err := jwt.DecodeAuthorizationRequestClaims(string(m.Data))
	if err != nil {
		return
	}
	resp := jwt.NewAuthorizationResponseClaims(req.UserNkey)
	resp.Audience, resp.Error = req.Server.ID, "busy"
	if token, err := resp.Encode(l.keys.issuer); err == nil {
		_ = m.Respond([]byte(token)) // without it, NATS closes the connection after authTimeout
	}
}

// handleAuth authorises a connection. The NATS server calls it for every connection except the platform's own.
func (l *Link) handleAuth(ctx context.Context, m *nats.Msg) {
	req, err := jwt.DecodeAuthorizationRequestClaims(string(m.Data))
	if err != nil {
		l.log.Error("cannot read what NATS asks", "err", err)
		return
	}
	resp := jwt.NewAuthorizationResponseClaims(req.UserNkey)
	resp.Audience = req.Server.ID
	host, err := l.admit(ctx, req)
	if err == nil {
		resp.Jwt, err = l.permit(host, req.UserNkey)
	}
	if err != nil {
		// The host sees only that it was refused; the reason is only logged.
		l.log.Warn("connection refused", "address", req.ClientInformation.Host, "name",
			text.Clip(req.ClientInformation.Name, 80), "host", host, "err", err)
		resp.Error = "refused"
	}
	token, err := resp.Encode(l.keys.issuer)
	if err == nil {
		err = m.Respond([]byte(token))
	}
	if err != nil {
		l.log.Error("cannot answer NATS", "err", err)
	}
}

// admit verifies the key and the signature over this connection's nonce, and ensures that the host has no other
// connection.
func (l *Link) admit(ctx context.Context, req *jwt.AuthorizationRequestClaims) (id.Host, error) {
	o, c := req.ConnectOptions, req.ClientInformation
	sig, err := base64.RawURLEncoding.DecodeString(o.SignedNonce)
	if err != nil {
		return id.Host{}, fault.New(fault.Unauthorized, "The signature cannot be read.")
	}
	link, err := l.agents.VerifyLink(ctx, o.Nkey, []byte(c.Nonce), sig)
	if err != nil {
		return link.Host, err
	}
	conn := host.Conn{Server: req.Server.ID, Client: c.ID, Instance: agentapi.InstanceOf(c.Name), Address: c.Host}
	if link.Connected {
		if err := l.makeRoom(ctx, link, conn); err != nil {
			return link.Host, err
		}
	}
	if l.expired(ctx) { // the agent has given this connection up: its session would only be in the way of the next one
		return link.Host, errBusy
	}
	session, err := l.agents.OpenSession(ctx, link, conn)
	if err != nil {
		return link.Host, err
	}
	l.log.Info("host connected", "host", link.Host, "name", link.Name, "session", session, "address", conn.Address)
	return link.Host, nil
}

var errSecond = errors.New("the host has another connection")

// makeRoom handles the case that the host already has a connection. A connection of the same agent process is broken
// without having been noticed, so makeRoom closes it; one that its NATS server no longer has does not count. Otherwise
// another machine has a copy of the key: makeRoom keeps the first connection, alerts the operator and returns
// errSecond.
func (l *Link) makeRoom(ctx context.Context, link host.Link, conn host.Conn) error {
	if conn.Instance != "" && conn.Instance == link.Conn.Instance {
		return l.kick(ctx, link.Conn)
	}
	alive, err := l.alive(ctx, link.Conn)
	if err != nil || !alive {
		return err
	}
	l.alert(ctx, link.Host, host.Alert{
		Action: "host.second_connection",
		Title:  "A second machine uses the key of " + link.Name,
		Body: "A connection from " + conn.Address + " presented this host's key while the host was connected, and was " +
			"refused. If the host's disk was copied, retire the host and enrol both machines again.",
	})
	return errSecond
}

// permit returns the signed permissions of a host's connection.
func (l *Link) permit(host id.Host, user string) (string, error) {
	h := host.String()
	c := jwt.NewUserClaims(user)
	c.Name = h
	c.Audience = accountHosts
	c.Pub.Allow.Add(agentapi.SubjectInventory(h), agentapi.SubjectSync(h), agentapi.SubjectTelemetry(h),
		agentapi.SubjectVolume(h))
	c.Sub.Allow.Add(agentapi.SubjectWake(h), agentapi.SubjectDial(h), agentapi.InboxPrefix(h)+".>")
	return c.Encode(l.keys.issuer)
}
