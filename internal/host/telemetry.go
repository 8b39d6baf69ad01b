package host

import (
	"context"
	"time"

	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/id"
)

// Sample is one reading of one GPU. A number is -1 where the device does not tell.
type Sample struct {
	At     time.Time
	Util   int // percent
	MemMB  int
	PowerW int
	TempC  int
}

// Series is one GPU's samples in order of time.
type Series struct {
	GPU     id.GPU
	Samples []Sample
}

// AppendTelemetry adds samples to the GPUs' history.
func AppendTelemetry(ctx context.Context, d *db.DB, series []Series) error { return notBuilt() }

// Telemetry reads the GPUs' samples in [from, to), thinned to one per step (0 = all kept, one per TelemetryStep). The
// caller bounds the times to what the reader may see.
func Telemetry(ctx context.Context, q *dbq.Queries, gpus []id.GPU, from, to time.Time, step time.Duration) ([]Series, error) {
	return nil, notBuilt()
}

// TelemetryStep is the time between kept samples.
const TelemetryStep = 10 * time.Second

// TelemetryPartitions makes the partitions of today and the days ahead, and drops those older than keep.
func TelemetryPartitions(ctx context.Context, d *db.DB, keep time.Duration) error { return notBuilt() }
