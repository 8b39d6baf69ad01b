package bus

import (
	"context"
	"slices"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/musterhq/muster/internal/id"
)

const changed = "muster.changed."

// flushWithin bounds how long Watch waits for its subscriptions to stand while NATS is out of reach.
const flushWithin = 2 * time.Second

// Topics: what can change and be watched.

func TopicCluster(c id.Cluster) string { return "cluster." + c.String() }
func TopicOrg(o id.Org) string         { return "org." + o.String() } // its lists: clusters, hosts, balance, notices
func TopicHost(h id.Host) string       { return "host." + h.String() }

// TopicKeys tells replicas that a host's keys were revoked and its connection must be closed.
func TopicKeys(h id.Host) string { return "keys." + h.String() }

// AllKeys is TopicKeys of every host.
const AllKeys = "keys.*"

// Change says that something changed; what, the receiver reads in PostgreSQL. Topic is "" after this replica's
// connection to NATS was restored: anything may have changed.
type Change struct{ Topic string }

// Changed tells whoever watches one of the topics. Call it after the commit, as in tx.AfterCommit.
func (b *Bus) Changed(topics ...string) {
	if b.off() {
		return
	}
	for _, t := range topics {
		_ = b.replicas.Publish(changed+t, nil)
	}
}

// Watch reports changes of the topics until ctx ends, and closes the channel then. Changes of one topic that the
// receiver has not taken yet become one. A nil bus reports none.
func (b *Bus) Watch(ctx context.Context, topics ...string) <-chan Change {
	out := make(chan Change)
	if b.off() {
		context.AfterFunc(ctx, func() { close(out) })
		return out
	}
	in := make(chan *nats.Msg, 64)
	var subs []*nats.Subscription
	for _, t := range topics {
		if s, err := b.replicas.ChanSubscribe(changed+t, in); err == nil {
			subs = append(subs, s)
		}
	}
	// The caller reads the present state next; what changes after that must reach it.
	_ = b.replicas.FlushTimeout(flushWithin)
	restored := b.replicas.StatusChanged(nats.CONNECTED)
	go func() {
		defer close(out)
		defer b.replicas.RemoveStatusListener(restored)
		defer func() {
			for _, s := range subs {
				_ = s.Unsubscribe()
			}
		}()
		relay(ctx, in, restored, out)
	}()
	return out
}

// relay hands changes on in order, holding each topic once while the receiver is busy.
func relay(ctx context.Context, in <-chan *nats.Msg, restored <-chan nats.Status, out chan<- Change) {
	var waiting []string
	note := func(topic string) {
		if !slices.Contains(waiting, topic) {
			waiting = append(waiting, topic)
		}
	}
	for {
		var send chan<- Change
		var next Change
		if len(waiting) > 0 {
			send, next = out, Change{waiting[0]}
		}
		select {
		case <-ctx.Done():
			return
		case m := <-in:
			note(m.Subject[len(changed):])
		case _, open := <-restored:
			if !open { // the connection is closed for good
				restored = nil
				continue
			}
			note("")
		case send <- next:
			waiting = waiting[1:]
		}
	}
}
