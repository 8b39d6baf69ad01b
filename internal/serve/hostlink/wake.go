package hostlink

import (
	"context"
	"encoding/json"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/id"
)

const (
	// maxWake is the largest wake with a desired state, in bytes. Hosts whose state is larger ask for it with a sync.
	maxWake = 128 << 10
	// wakeBacklog is how much work may wait in the queue of wakes. While more waits, wakes are sent without a state: the
	// hosts' syncs are paced, and the database has other things to do.
	wakeBacklog = 100 * time.Millisecond
	// wakeTimeout limits the time to read the state of one wake.
	wakeTimeout = 5 * time.Second
)

// wake sends a host a wake with its desired state. It does not block. If the state cannot be sent, the wake has only
// the revision, and the host asks for the state with a sync.
func (l *Link) wake(h id.Host, revision int64) {
	data, err := json.Marshal(agentapi.Wake{Revision: revision})
	if err != nil {
		return
	}
	l.wakes.add(h, &nats.Msg{Subject: agentapi.SubjectWake(h.String()), Data: data},
		func(ctx context.Context, plain *nats.Msg) {
			if data := l.wakeState(ctx, h, revision); data != nil {
				plain.Data = data
			}
			l.wakePlain(plain, 0)
		})
}

// wakeState returns a wake with the host's desired state, which may be newer than revision; nil if there is none to
// send. The state contains secrets and is never logged.
func (l *Link) wakeState(ctx context.Context, h id.Host, revision int64) []byte {
	ctx, cancel := context.WithTimeout(ctx, wakeTimeout)
	defer cancel()
	d, err := l.clusters.WakeState(ctx, h)
	if err != nil {
		l.log.Warn("a wake is sent without the desired state", "host", h, "err", err)
		return nil
	}
	if d == nil || d.Revision < revision {
		return nil
	}
	data, err := agentapi.Encode(agentapi.Wake{Revision: d.Revision, Desired: d})
	if err != nil || len(data) > maxWake {
		return nil
	}
	return data
}

// wakePlain publishes a wake as it is. It may be lost: hosts also sync periodically.
func (l *Link) wakePlain(m *nats.Msg, _ time.Duration) { _ = l.hosts.PublishMsg(m) }
