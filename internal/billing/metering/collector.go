package metering

import (
	"context"
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
	// worthAnother is how many segments must wait for a second transaction beside the first: a transaction costs two dozen
	// statements, and with fewer segments than this, they are most of what it costs.
	worthAnother = 256
	// collectFor bounds one transaction. The sender may stop waiting before it ends.
	collectFor = 30 * time.Second
)

// Collector is where hosts deliver their usage segments, and get the time anchors that these refer to. Segments that
// arrive at about the same time from many hosts go into one transaction, because each transaction costs two dozen
// statements however little it holds. A delivery never waits for others to arrive; it waits only while a transaction is
// running, and the next one, which begins then or once many segments have gathered, takes all of them. Safe for
// concurrent use.
type Collector struct {
	db         *db.DB
	deliveries *db.Gather[Delivery, []agentapi.UsageAck]
	clocks     *db.Gather[BootClock, *agentapi.Anchor]
}

// NewCollector makes a Collector for this replica.
func NewCollector(d *db.DB) *Collector {
	ingest := func(ctx context.Context, all []Delivery) ([][]agentapi.UsageAck, error) {
		return IngestAll(ctx, d, all)
	}
	c := &Collector{db: d}
	c.deliveries = db.NewGather(collecting, maxCollected, collectFor, ingest).
		Weighing(func(v Delivery) int { return len(v.Segments) }).Worth(worthAnother)
	c.clocks = db.NewGather(collecting, maxCollected, collectFor, c.issueAnchors)
	return c
}

// Ingest takes in the segments of one host, with the fields of Delivery, as IngestAll does. If ctx ends first, its
// error is returned and the segments may or may not be stored: the host sends them again.
func (c *Collector) Ingest(ctx context.Context, host id.Host, segs []agentapi.Segment,
	signature []byte) ([]agentapi.UsageAck, error) {
	return c.deliveries.Do(ctx, Delivery{host, segs, signature})
}
