package market_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/musterhq/muster/internal/fleet/market"
	"github.com/musterhq/muster/internal/money"
	"github.com/musterhq/muster/internal/testing/fleettest"
)

// An offer's history has the price that held when it begins, and the days on which reports of a rented host were
// missing.
func TestOfferHistory(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	h := w.host("a", 1, "3.00")
	p, err := w.m.SearchOffers(t.Context(), market.OfferSearch{})
	if err != nil {
		t.Fatal(err)
	}
	offer := p.Items[0].ID
	today := time.Now().UTC().Truncate(24 * time.Hour)
	day := func(ago int, hours float64) time.Time {
		return today.AddDate(0, 0, -ago).Add(time.Duration(hours * float64(time.Hour)))
	}
	w.exec("DELETE FROM offer_price")
	for ago, price := range map[int]any{50: 9_000_000, 40: 1_000_000, 20: nil, 10: 2_000_000} {
		w.exec("INSERT INTO offer_price (offer_id, price, at) VALUES ($1, $2, $3)", offer, price, day(ago, 0))
	}
	_, first := fleettest.Lease(t, w.d, h, w.tenant)
	w.exec("UPDATE lease SET created_at = $2, ended_at = $3 WHERE id = $1", first, day(5, 12), day(4, 6))
	w.exec("INSERT INTO silence (host_id, from_ms, to_ms, kind) VALUES ($1, $2, $3, 'missing'), ($1, $4, $5, 'late')", h,
		day(4, 5).UnixMilli(), day(4, 9).UnixMilli(), day(5, 13).UnixMilli(), day(5, 14).UnixMilli())

	got, err := w.m.OfferHistory(t.Context(), offer, h)
	if err != nil {
		t.Fatal(err)
	}
	price := func(n money.Micro) *money.Micro { return &n }
	if d := cmp.Diff([]market.PricePoint{
		{At: day(40, 0), Price: price(1_000_000)},
		{At: day(20, 0)},
		{At: day(10, 0), Price: price(2_000_000)},
	}, got.Prices); d != "" {
		t.Errorf("prices (-want +got):\n%s", d)
	}
	want := map[time.Time]market.Day{
		day(5, 0): {Start: day(5, 0), Rented: 12 * time.Hour},
		day(4, 0): {Start: day(4, 0), Rented: 6 * time.Hour, Missing: time.Hour},
	}
	for i, d := range got.Reports {
		start := day(market.HistoryDays-1-i, 0)
		expected, ok := want[start]
		if !ok {
			expected = market.Day{Start: start}
		}
		if diff := cmp.Diff(expected, d); diff != "" {
			t.Errorf("%s (-want +got):\n%s", start.Format(time.DateOnly), diff)
		}
	}
}
