package bus

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/musterhq/muster/internal/id"
)

const changed = "muster.changed."

// flushWithin limits how long Watch waits for its subscriptions to be active while NATS is unreachable.
const flushWithin = 2 * time.Second

// Topics name what can change and be watched.

func TopicCluster(c id.Cluster) string { return "cluster." + c.String() }
func TopicOrg(o id.Org) string         { return "org." + o.String() } // lists: clusters, hosts, balance, notices
func TopicHost(h id.Host) string       { return "host." + h.String() }

// TopicKeys notifies replicas that a host's keys were revoked and its connection must be closed.
func TopicKeys(h id.Host) string { return "keys." + h.String() }

// AllKeys is TopicKeys of every host.
const AllKeys = "keys.*"

// Change reports that something changed; the receiver reads what from PostgreSQL. Topic is "" after this replica's
// connection to NATS was restored: anything may have changed.
type Change struct{ Topic string }

// Changed notifies every watcher of one of the topics. Call it after the commit, as in tx.AfterCommit.
func (b *Bus) Changed(topics ...string) {
	if b.off() {
		return
	}
	for _, t := range topics {
		_ = b.replicas.Publish(changed+t, nil)
	}
}

// Watch reports changes of the topics until ctx ends, and then closes the channel. However slow the receiver is, it
// learns of every topic that changed since it last received that topic: pending changes of a topic are merged. A nil
// bus reports none.
func (b *Bus) Watch(ctx context.Context, topics ...string) <-chan Change {
	out := make(chan Change)
	if b.off() {
		context.AfterFunc(ctx, func() { close(out) })
		return out
	}
	p := pending{more: make(chan struct{}, 1)}
	var subs []*nats.Subscription
	for _, t := range topics {
		if s, err := b.replicas.Subscribe(changed+t, func(m *nats.Msg) { p.note(m.Subject[len(changed):]) }); err == nil {
			subs = append(subs, s)
		}
	}
	// The caller reads the present state next; later changes must reach it.
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
		p.relay(ctx, restored, out)
	}()
	return out
}

// pending holds, in order, the topics that changed and that the receiver has not received yet.
type pending struct {
	mu     sync.Mutex
	topics []string
	more   chan struct{} // holds one value if topics may have grown
}

func (p *pending) note(topic string) {
	p.mu.Lock()
	if !slices.Contains(p.topics, topic) {
		p.topics = append(p.topics, topic)
	}
	p.mu.Unlock()
	select {
	case p.more <- struct{}{}:
	default:
	}
}

func (p *pending) take() (string, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.topics) == 0 {
		return "", false
	}
	t := p.topics[0]
	p.topics = p.topics[1:]
	return t, true
}

// relay forwards changes until ctx ends.
func (p *pending) relay(ctx context.Context, restored <-chan nats.Status, out chan<- Change) {
	for {
		if topic, ok := p.take(); ok {
			select {
			case <-ctx.Done():
				return
			case out <- Change{topic}:
			}
			continue
		}
		select {
		case <-ctx.Done():
			return
		case <-p.more:
		case _, open := <-restored:
			if !open { // the connection is closed for good
				restored = nil
				continue
			}
			p.note("")
		}
	}
}
