package metering

import (
	"math/big"
	"testing"
	"time"

	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/money"
)

// A cluster that has just ended does not cost what its processes would take if they used all the time they have to end.
func TestCost_CountsNoTimeThatIsStillToCome(t *testing.T) {
	t.Parallel()
	const stop, tail = int64(1_000_000), int64(15_000)
	end := time.UnixMilli(stop + tail)
	l := &lease{
		LeasesByIDRow: dbq.LeasesByIDRow{EndedAt: &end},
		meter:         Meter{SettledThrough: stop, Numerator: new(big.Int)},
		terms:         Terms{Life: Interval{End: stop + tail}, Prices: []Price{{Rate: 3600}}, SharePPM: 850_000},
		windows:       []Window{{OpenedMS: stop, ConfirmedMS: stop, ClosedMS: stop + tail}},
	}
	for at, want := range map[int64]int64{stop: 0, stop + 400: 400, stop + tail: tail, stop + 60_000: tail} {
		mustEqual(t, "time", l.soFarMS(at), want)
		mustEqual(t, "cost", l.soFar(at), money.Nano(want))
	}
}
