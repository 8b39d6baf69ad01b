package hostlink

import (
	"context"
	"encoding/json"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/musterhq/muster/internal/fleet/host"
)

// subjectPulse is the subject of the control plane's messages to itself. No host may publish there.
const subjectPulse = "server.pulse"

// pulse sends one message through this replica's listener. It takes the same path as a host's report: NATS, the queue
// of reports, the database. If it does not arrive in time, hosts' reports would not have arrived either.
func (l *Link) pulse(ctx context.Context) {
	epoch, now, err := l.all.ControlEpoch(ctx)
	if err != nil {
		l.log.Warn("no pulse: the database does not answer", "err", err)
		return
	}
	l.epoch.Store(epoch)
	data, err := json.Marshal(host.Pulse{
		Listener:     l.hosts.ConnectedServerId(),
		SentMS:       now.UnixMilli(),
		ControlEpoch: epoch,
	})
	if err == nil {
		err = l.hosts.Publish(subjectPulse, data)
	}
	if err != nil {
		l.log.Warn("a pulse was not sent", "err", err)
	}
}

func (l *Link) handlePulse(ctx context.Context, m *nats.Msg) {
	var p host.Pulse
	if err := json.Unmarshal(m.Data, &p); err != nil || p.Listener == "" {
		return
	}
	if err := l.all.RecordPulse(ctx, p); err != nil {
		l.log.Error("a pulse was not recorded", "listener", p.Listener, "err", err)
	}
}

// postpone refuses a message of the queue of reports. A pulse gets the same wait as a host, and comes back after it:
// while hosts' reports are refused, their silence is not their fault.
func (l *Link) postpone(m *nats.Msg, wait time.Duration) {
	if m.Subject != subjectPulse {
		l.refuse(m, wait)
		return
	}
	time.AfterFunc(wait, func() { l.reports.add(m, l.handlePulse) })
}
