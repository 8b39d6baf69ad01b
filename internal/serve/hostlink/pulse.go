package hostlink

import (
	"context"
	"encoding/json"
	"slices"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/musterhq/muster/internal/fleet/host"
	"github.com/musterhq/muster/internal/id"
)

// subjectPulse is the subject of the control plane's messages to itself. No host may publish there.
const subjectPulse = "server.pulse"

// pulses is a message of the control plane to itself, as it is sent.
type pulses struct {
	host.Pulse
	Others []string `json:",omitempty"` // the other listeners to which it also applies
}

// pulse sends one message through this replica's listener. It takes the same path as a host's report: NATS, the queue
// of reports, the database. If it does not arrive in time, hosts' reports would not have arrived either.
//
// Hosts connect to any server of an external NATS cluster, also to those to which no replica is connected. The message
// therefore also applies to every server that answers a question over the cluster: such a server can deliver reports.
func (l *Link) pulse(ctx context.Context) {
	others := l.otherListeners(ctx)
	epoch, now, err := l.all.ControlEpoch(ctx)
	if err != nil {
		l.log.Warn("no pulse: the database does not answer", "err", err)
		return
	}
	l.epoch.Store(epoch)
	data, err := json.Marshal(pulses{
		Pulse:  host.Pulse{Listener: l.hosts.ConnectedServerId(), SentMS: now.UnixMilli(), ControlEpoch: epoch},
		Others: others,
	})
	if err == nil {
		err = l.hosts.Publish(subjectPulse, data)
	}
	if err != nil {
		l.log.Warn("a pulse was not sent", "err", err)
	}
}

// listenersWait is how long the servers of an external NATS cluster have to answer.
const listenersWait = time.Second

// otherListeners returns the ids of the servers of an external NATS cluster that answer, without the one to which this
// replica is connected. The embedded servers of other replicas have pulses of their own.
func (l *Link) otherListeners(ctx context.Context) []string {
	if l.ns != nil {
		return nil
	}
	inbox := l.sys.NewInbox()
	sub, err := l.sys.SubscribeSync(inbox)
	if err != nil {
		return nil
	}
	defer sub.Unsubscribe() //nolint:errcheck // it fails only if the connection is closed
	if err := l.sys.PublishRequest("$SYS.REQ.SERVER.PING.IDZ", inbox, nil); err != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, listenersWait)
	defer cancel()
	own := l.hosts.ConnectedServerId()
	var out []string
	for len(out) < maxListeners {
		m, err := sub.NextMsgWithContext(ctx)
		if err != nil {
			break
		}
		var s server.ServerID
		if json.Unmarshal(m.Data, &s) == nil && s.ID != "" && s.ID != own && !slices.Contains(out, s.ID) {
			out = append(out, s.ID)
		}
	}
	return out
}

// maxListeners limits the listeners of one pulse.
const maxListeners = 32

func (l *Link) handlePulse(ctx context.Context, m *nats.Msg) {
	var p pulses
	if err := json.Unmarshal(m.Data, &p); err != nil || p.Listener == "" {
		return
	}
	for _, listener := range append([]string{p.Listener}, p.Others...) {
		p.Listener = listener
		if err := l.all.RecordPulse(ctx, p.Pulse); err != nil {
			l.log.Error("a pulse was not recorded", "listener", listener, "err", err)
			return
		}
	}
}

// closeDeparted records that the connections of NATS servers that are gone have ended. A server that was killed does
// not report the ends of its connections.
func (l *Link) closeDeparted(ctx context.Context) {
	servers, err := l.all.SilentServers(ctx)
	if err != nil {
		if ctx.Err() == nil {
			l.log.Error("cannot look for NATS servers that are gone", "err", err)
		}
		return
	}
	for _, ns := range servers {
		gone, err := l.request(ctx, ns, "IDZ", struct{}{}, &server.ServerID{})
		if err != nil || !gone {
			continue // it may be alive
		}
		n, err := l.all.CloseSessions(ctx, ns)
		if err != nil {
			l.log.Error("cannot note that a NATS server is gone", "server", ns, "err", err)
			continue
		}
		l.log.Info("closed the connections of a NATS server that is gone", "server", ns, "hosts", n)
	}
}

// postpone refuses a message of the queue of reports. A pulse gets the same wait as a host, and comes back after it:
// while hosts' reports are refused, their silence is not their fault.
func (l *Link) postpone(m *nats.Msg, wait time.Duration) {
	if m.Subject != subjectPulse {
		l.refuse(m, wait)
		return
	}
	time.AfterFunc(wait, func() { l.reports.add(id.Host{}, m, l.handlePulse) })
}
