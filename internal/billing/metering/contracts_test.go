package metering

import (
	"context"
	"testing"
	"time"

	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/money"
)

// A replica that has seen a lease before sees at each report what has changed of it since: another start, windows, the
// end, from which on nothing is billed, and the settlement, from which on nothing is accepted.
func TestCollector_SeesWhatChangesOfALease(t *testing.T) {
	t.Parallel()
	w, t0 := open(t, newDB(t), 3_600_000)
	l, c := w.leases[0], NewCollector(w.DB)
	send := func(want string, s agentapi.Segment) {
		t.Helper()
		acks, err := c.Ingest(context.Background(), w.host, []agentapi.Segment{s}, nil)
		if err != nil || len(acks) != 1 {
			t.Fatalf("%v, %v", acks, err)
		}
		mustEqual(t, "refusal", acks[0].Refused, want)
	}
	send("", w.segment(l, 1, t0, t0+300_000, false))
	second := w.segment(l, 1, t0+300_000, t0+600_000, false)
	second.Epoch = 2
	second.Sign(w.host.String(), w.key)
	send(refusedEpoch, second)
	w.Exec("UPDATE lease SET epoch = 2 WHERE id = $1", l)
	second.Seq = 2 // what was refused stays refused
	second.Sign(w.host.String(), w.key)
	send("", second)
	mustEqual(t, "posted", w.posted(), money.CostOf(3_600_000, 600_000))

	w.end(w.now)
	w.Exec("UPDATE lease SET ended_at = to_timestamp($2::bigint / 1000.0) WHERE id = $1", l, t0+700_000)
	send("", w.segment(l, 2, t0+600_000, t0+900_000, true))
	mustEqual(t, "posted", w.posted(), money.CostOf(3_600_000, 700_000))
	w.ledgerBalances()
	w.Exec("UPDATE lease SET settled_at = now() WHERE id = $1", l)
	send(refusedLate, w.segment(l, 3, t0+900_000, t0+1_000_000, true))
}

// What a replica remembers is bounded, and what it forgets it reads again.
func TestContracts_AreBounded(t *testing.T) {
	t.Parallel()
	var c contracts
	one := id.New[id.Lease]()
	for k := range 3 {
		have := map[id.Lease]contract{}
		if k == 1 {
			have[one] = contract{row: dbq.LeasesByIDRow{ID: one, Currency: "EUR"}, prices: []Price{{Rate: 7}}}
		}
		for range maxContracts / 2 {
			n := id.New[id.Lease]()
			have[n] = contract{row: dbq.LeasesByIDRow{ID: n}}
		}
		c.remember(have, idList(one))
	}
	mustEqual(t, "remembered", len(c.by), maxContracts)
	have, missing := c.of([]dbq.LeaseMeter{{LeaseID: one}, {LeaseID: id.New[id.Lease]()}})
	mustEqual(t, "in all", len(have)+len(missing), 2)
	if v, ok := have[one]; ok {
		mustEqual(t, "currency", v.row.Currency, "EUR")
		now := time.UnixMilli(5)
		mustEqual(t, "end", *v.now(dbq.LeasesWithWindowsRow{EndedAt: &now}).EndedAt, now)
	}
}
