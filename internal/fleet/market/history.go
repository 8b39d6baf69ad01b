package market

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/interval"
	"github.com/musterhq/muster/internal/money"
)

// HistoryDays is how many days an offer's history covers, today included.
const HistoryDays = 30

// History is how an offer and its host did in the last days.
type History struct {
	From, To time.Time
	Prices   []PricePoint     // oldest first; the first may be from before From
	Reports  [HistoryDays]Day // by UTC day, oldest first
}

// PricePoint is a price per GPU-hour from a moment on; nil = the offer was not listed.
type PricePoint struct {
	At    time.Time
	Price *money.Micro
}

// Day is how much of its rented time a host reported on one day.
type Day struct {
	Start   time.Time
	Rented  time.Duration // while at least one lease ran
	Missing time.Duration // of it, without reports
}

// OfferHistory returns the history of an offer of a host. Prices and reports of listed offers are public; the caller
// must have found the offer in a search.
func (m *Market) OfferHistory(ctx context.Context, offer id.Offer, host id.Host) (History, error) {
	now := m.cfg.Now().UTC()
	h := History{From: now.Truncate(24*time.Hour).AddDate(0, 0, 1-HistoryDays), To: now}
	prices, err := m.db.Q.OfferPricesSince(ctx, offer, h.From)
	if err != nil {
		return h, fmt.Errorf("prices of %s: %w", offer, err)
	}
	for _, p := range slices.Backward(prices) {
		h.Prices = append(h.Prices, PricePoint{p.At.UTC(), p.Price})
	}
	rented, err := m.db.Q.RentedSpans(ctx, host, &h.From)
	if err != nil {
		return h, fmt.Errorf("rented time of %s: %w", host, err)
	}
	missing, err := m.db.Q.MissingReports(ctx, host, h.From.UnixMilli())
	if err != nil {
		return h, fmt.Errorf("missing reports of %s: %w", host, err)
	}
	var leased, silent []interval.Span
	for _, r := range rented {
		leased = append(leased, interval.Span{Start: r.FromMs, End: r.ToMs})
	}
	for _, r := range missing {
		silent = append(silent, interval.Span{Start: r.FromMs, End: r.ToMs})
	}
	h.Reports = reportDays(h.From, interval.Of(leased...), interval.Of(silent...))
	return h, nil
}

// reportDays splits the leased time of a host, and the part of it that it was silent, into days.
func reportDays(from time.Time, leased, silent interval.Set) (days [HistoryDays]Day) {
	for i := range days {
		start := from.AddDate(0, 0, i)
		day := leased.Clip(interval.Span{Start: start.UnixMilli(), End: start.AddDate(0, 0, 1).UnixMilli()})
		days[i] = Day{
			Start:   start,
			Rented:  time.Duration(day.Len()) * time.Millisecond,
			Missing: time.Duration(day.Intersect(silent).Len()) * time.Millisecond,
		}
	}
	return days
}
