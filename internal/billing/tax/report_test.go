package tax

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/money"
	"github.com/musterhq/muster/internal/testing/billingtest"
	"github.com/musterhq/muster/internal/testing/dbtest"
)

func TestReport_ByCountryAndPeriod(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t)
	org := billingtest.New(t, d).Org()
	home := Tax{PPM: 190_000, Name: "VAT", Country: "DE", Reason: Home}
	back := Tax{Country: "FR", VATID: "FR12345678901", Reason: ReverseCharge}
	err := d.InTx(t.Context(), func(ctx context.Context, tx *db.Tx) error {
		for _, l := range []Line{
			{Key: "a", Kind: TopUp, Net: 100 * money.Unit, Tax: 19 * money.Unit, Of: home},
			{Key: "b", Kind: Refund, Net: -50 * money.Unit, Tax: -950 * money.Cent, Of: home},
			{Key: "c", Kind: RefundReturned, Net: 50 * money.Unit, Tax: 950 * money.Cent, Of: home},
			{Key: "d", Kind: TopUp, Net: 7 * money.Unit, Of: back},
		} {
			l.Org, l.Ref, l.Currency = org, "x", "EUR"
			if err := Record(ctx, tx, l); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now().UTC()
	r, err := ReportOf(t.Context(), d.Q, "EUR", now.Format("2006"))
	if err != nil || len(r.Lines) != 2 || r.Net != 107*money.Unit || r.Tax != 19*money.Unit || r.Book != 19*money.Unit ||
		r.Payable != 0 {
		t.Fatalf("%+v %v", r, err)
	}
	de, fr := r.Lines[0], r.Lines[1]
	if de.Country != "DE" || de.Sales != 1 || de.Sold != 150*money.Unit || de.Returned != 50*money.Unit ||
		de.Charged != 2850*money.Cent || de.Tax != 19*money.Unit || de.Percent != "19" {
		t.Errorf("%+v", de)
	}
	if fr.Reason != ReverseCharge || fr.VATID != back.VATID || fr.Net != 7*money.Unit || fr.Tax != 0 {
		t.Errorf("%+v", fr)
	}
	var b strings.Builder
	if err := r.CSV(&b); err != nil || !strings.Contains(b.String(),
		",DE,home,VAT,19,,1,150.000000000,28.500000000,50.000000000,9.500000000,100.000000000,19.000000000,EUR\n") {
		t.Error(b.String(), err)
	}
	if _, err := d.Pool.Exec(t.Context(), "UPDATE tax_entry SET tax = 0"); err == nil {
		t.Error("the book can be changed")
	}
	for period, want := range map[string]string{
		"2026-Q4": "2026-10-01 2027-01-01",
		"2026-02": "2026-02-01 2026-03-01",
		"2027":    "2027-01-01 2028-01-01",
	} {
		from, to, err := span(period)
		if got := from.Format(time.DateOnly) + " " + to.Format(time.DateOnly); err != nil || got != want {
			t.Errorf("%s: %s %v", period, got, err)
		}
	}
	for _, bad := range []string{"", "x", "2026-Q5", "2026-Q0", "2026-Q", "2026-13", "2026-1", "1999", "2026-Q+1"} {
		if _, err := ReportOf(t.Context(), d.Q, "EUR", bad); !fault.Is(err, fault.Invalid) {
			t.Errorf("%q: %v", bad, err)
		}
	}
}
