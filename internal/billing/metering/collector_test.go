package metering

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/money"
)

// Deliveries of many hosts in one transaction are each judged as if they came alone: what one host reports about
// another's lease is refused and hides nothing of the other host's own reports.
func TestCollector_ManyHostsInOneTransaction(t *testing.T) {
	t.Parallel()
	d := newDB(t)
	a, b := newWorld(t, d, 100*money.Unit, 3_600_000), newWorld(t, d, 100*money.Unit, 3_600_000)
	for _, w := range []*world{a, b} {
		w.mustAuthorise()
		w.age(time.Hour)
		w.window(w.now-3_500_000, w.now-1_000_000, 0)
	}
	t0 := b.now - 3_400_000
	stolen := a.segment(b.leases[0], 1, t0, t0+300_000, false)
	forged := b.segment(b.leases[0], 2, t0+300_000, t0+600_000, false)
	forged.EnergyMJ++
	acks, err := IngestAll(t.Context(), d, []Delivery{
		{a.host, []agentapi.Segment{stolen}, nil},
		{b.host, b.segments(b.leases[0], 1, t0, t0+300_000, false), nil},
		{a.host, a.segments(a.leases[0], 1, t0, t0+600_000, false), nil},
		{b.host, append(b.segments(b.leases[0], 1, t0, t0+300_000, false), forged), nil}, // sent twice, and something bad
		{a.host, nil, nil},
	})
	if err != nil {
		t.Fatal(err)
	}
	ref := func(l id.Lease) agentapi.LeaseRef { return agentapi.LeaseRef{Lease: l.String(), Epoch: 1} }
	want := [][]agentapi.UsageAck{
		{{LeaseRef: ref(b.leases[0]), BootID: boot, Through: 1, Refused: refusedForeign}},
		{{LeaseRef: ref(b.leases[0]), BootID: boot, Through: 1}},
		{{LeaseRef: ref(a.leases[0]), BootID: boot, Through: 2}},
		{{
			LeaseRef: ref(b.leases[0]),
			BootID:   boot,
			Through:  1,
		}, {LeaseRef: ref(b.leases[0]), BootID: boot, Through: 2, Refused: refusedSignature}},
		nil,
	}
	if diff := cmp.Diff(want, acks); diff != "" {
		t.Errorf("acks: %s", diff)
	}
	mustEqual(t, "a's bill", a.usage().Cost, money.Nano(600*money.Unit/1000))
	mustEqual(t, "b's bill", b.usage().Cost, money.Nano(300*money.Unit/1000))
	a.ledgerBalances()
}
