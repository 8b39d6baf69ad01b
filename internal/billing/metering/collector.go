package metering

import (
	"context"
	"sync"
	"time"

	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/id"
)

const (
	// maxCollected is how many segments one transaction takes in: beyond it a transaction only gets longer.
	maxCollected = 2_000
	// collecting is how many transactions a replica has under way: one verifies signatures while another writes.
	collecting = 2
	// collectFor bounds one transaction. The sender may stop waiting before it ends.
	collectFor = 30 * time.Second
)

// Collector is where hosts deliver their usage segments, and get the time anchors that these refer to. Segments that
// arrive at about the same time from many hosts go into one transaction, because each transaction costs two dozen
// statements however little it holds. A delivery never waits for others to arrive; it waits only while enough
// transactions are running, and the next one takes all that have gathered. Safe for concurrent use.
type Collector struct {
	db     *db.DB
	ingest func(context.Context, *db.DB, []Delivery) ([][]agentapi.UsageAck, error) // IngestAll but in tests

	mu      sync.Mutex
	waiting []*delivered
	running int
}

// NewCollector makes a Collector for this replica.
func NewCollector(d *db.DB) *Collector {
	return &Collector{db: d, ingest: IngestAll}
}

// delivered is a delivery and what became of it, once done is closed.
type delivered struct {
	Delivery
	done chan struct{}
	acks []agentapi.UsageAck
	err  error
}

// Ingest takes in the segments of one host, with the fields of Delivery, as IngestAll does. If ctx ends first, its
// error is returned and the segments may or may not be stored: the host sends them again.
func (c *Collector) Ingest(ctx context.Context, host id.Host, segs []agentapi.Segment,
	signature []byte) ([]agentapi.UsageAck, error) {
	v := &delivered{Delivery: Delivery{host, segs, signature}, done: make(chan struct{})}
	if c.add(v) {
		go c.run(context.WithoutCancel(ctx)) // until nothing waits
	}
	select {
	case <-v.done:
		return v.acks, v.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// add queues a delivery and reports whether the caller has to run.
func (c *Collector) add(v *delivered) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.waiting = append(c.waiting, v)
	if c.running == collecting {
		return false
	}
	c.running++
	return true
}

// next takes deliveries off the queue, oldest first; none: the caller no longer runs.
func (c *Collector) next() []*delivered {
	c.mu.Lock()
	defer c.mu.Unlock()
	n, segs := 0, 0
	for n < len(c.waiting) && (n == 0 || segs+len(c.waiting[n].Segments) <= maxCollected) {
		segs += len(c.waiting[n].Segments)
		n++
	}
	batch := c.waiting[:n:n]
	c.waiting = c.waiting[n:]
	if n == 0 {
		c.waiting = nil
		c.running--
	}
	return batch
}

func (c *Collector) run(ctx context.Context) {
	for batch := c.next(); len(batch) > 0; batch = c.next() {
		if !c.together(ctx, batch) && len(batch) > 1 {
			for _, v := range batch { // one host's trouble is not the others'
				c.together(ctx, []*delivered{v})
			}
		}
		for _, v := range batch {
			close(v.done)
		}
	}
}

// together takes deliveries in and reports whether that worked.
func (c *Collector) together(ctx context.Context, batch []*delivered) bool {
	ctx, cancel := context.WithTimeout(ctx, collectFor)
	defer cancel()
	in := make([]Delivery, len(batch))
	for i, v := range batch {
		in[i] = v.Delivery
	}
	acks, err := c.ingest(ctx, c.db, in)
	for i, v := range batch {
		v.acks, v.err = nil, err
		if err == nil {
			v.acks = acks[i]
		}
	}
	return err == nil
}
