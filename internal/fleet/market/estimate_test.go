package market_test

import (
	"testing"
	"time"

	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/fleet/market"
	"github.com/musterhq/muster/internal/money"
	"github.com/musterhq/muster/internal/testing/fleettest/markettest"
)

// An estimate is the price that a quote has at the same moment, and takes nothing off the market.
func TestEstimate_IsTheQuotesPrice(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.host("a", 4, "2.00")
	w.host("b", 4, "3.00")
	s := spec(2, 4, "gpu_model=H100")
	s.Image = ""
	for range 3 {
		plan, err := w.m.Estimate(t.Context(), "203.0.113.7", s)
		if err != nil || plan.Rate != 20_000_000 || len(plan.Nodes) != 2 {
			t.Fatalf("%+v %v", plan, err)
		}
	}
	q, err := w.quote(w.m, w.renter(money.Unit), s)
	if err != nil || q.Placement.Rate != 20_000_000 {
		t.Errorf("%s, %v", q.Placement.Rate, err)
	}
	_, err = w.replica().Estimate(t.Context(), "203.0.113.7", s)
	if f := fault.From(err); !fault.Is(err, fault.NoCapacity) || f.Extra["explain"] == nil {
		t.Errorf("the GPUs are quoted: %v", err)
	}
}

func TestEstimate_IsLimitedByAddress(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	now := time.Date(2026, 11, 23, 10, 0, 0, 0, time.UTC)
	w.host("a", 4, "2.00")
	m := markettest.New(w.World, market.Config{Now: func() time.Time { return now }})
	estimate := func(address string) error {
		_, err := m.Estimate(t.Context(), address, spec(1, 1, ""))
		return err
	}
	for range market.EstimatesPerMinute {
		if err := estimate("203.0.113.7"); err != nil {
			t.Fatal(err)
		}
	}
	if err := estimate("203.0.113.7"); !fault.Is(err, fault.RateLimited) {
		t.Errorf("one too many: %v", err)
	}
	if err := estimate("203.0.113.8"); err != nil {
		t.Errorf("another address: %v", err)
	}
	now = now.Add(time.Minute)
	if err := estimate("203.0.113.7"); err != nil {
		t.Errorf("a minute later: %v", err)
	}
}

func TestPrices_AreTheCheapestOfEachModel(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.host("a", 8, "3.00")
	w.host("b", 2, "1.00")
	w.host("unpriced", 4, "")
	w.exec("UPDATE gpu SET health = 'suspect' WHERE host_id = $1", w.host("ill", 1, "0.50"))
	list, err := w.m.Prices(t.Context())
	if err != nil || len(list) != 1 {
		t.Fatal(list, err)
	}
	if p := list[0]; p.Lowest != 1_000_000 || p.Highest != 3_000_000 || p.GPUsFree != 10 || p.Hosts != 2 ||
		p.VRAMGB != 80 {
		t.Errorf("%+v", p)
	}
}
