package ledger_test

import (
	"context"
	"encoding/csv"
	"fmt"
	"math/big"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/musterhq/muster/internal/billing/ledger"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/money"
	"github.com/musterhq/muster/internal/testing/billingtest"
	"github.com/musterhq/muster/internal/testing/dbtest"
)

// The balances, the flows, the journal and the organisations of a period are sums of the same entries, whether its days
// are closed or not.
func TestPeriod_TotalsMatchTheJournal(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t)
	renter, operator := closedDay(t, d)
	day := time.Now().UTC().AddDate(0, 0, -3)
	for _, e := range []ledger.Entry{
		topup(renter, "topup:3", 3*money.Unit),
		{Kind: "storage", Key: "storage:1", Transfers: []ledger.Transfer{
			{Debit: ledger.Wallet(renter, eur), Credit: ledger.Fee(eur), Amount: money.Unit}}},
		{Kind: "compensation", Key: "compensation:1", Transfers: []ledger.Transfer{
			{Debit: ledger.HostPending(operator, eur), Credit: ledger.Wallet(renter, eur), Amount: 85}}},
	} {
		if _, err := post(t, d, e); err != nil {
			t.Fatal(err)
		}
	}
	link(t, d) // today, which is open
	report := func(from, to time.Time) (r ledger.Report) {
		t.Helper()
		days, err := ledger.ParseDays(from.Format(time.DateOnly), to.Format(time.DateOnly))
		if err != nil {
			t.Fatal(err)
		}
		if err := d.InSnapshot(t.Context(), func(ctx context.Context, q *dbq.Queries) (err error) {
			r, err = ledger.ReportOf(ctx, q, days)
			return err
		}); err != nil {
			t.Fatal(err)
		}
		matches(t, d, days, r)
		return r
	}
	closed, open, all := report(day, day), report(day.AddDate(0, 0, 1), time.Now()), report(day, time.Now())
	if len(closed.Flows) != 4 || len(open.Flows) != 3 || len(all.Flows) < 6 {
		t.Errorf("%d, %d and %d flows", len(closed.Flows), len(open.Flows), len(all.Flows))
	}
	want := []ledger.KindOfSales{
		{Kind: "compensation", Currency: eur, Renters: "-0.000000085", Bonds: "0.000000000", Relief: "0.000000000",
			Hosts: "-0.000000085", Fees: "0.000000000"},
		{Kind: "storage", Currency: eur, Renters: "1.000000000", Bonds: "0.000000000", Relief: "0.000000000",
			Hosts: "0.000000000", Fees: "1.000000000"},
		{Kind: "usage", Currency: eur, Renters: "1.000000000", Bonds: "0.000000000", Relief: "0.000000000",
			Hosts: "0.850000000", Fees: "0.150000000"},
	}
	if diff := cmp.Diff(want, all.Turnover); diff != "" {
		t.Error(diff)
	}
	of := func(at time.Time) map[string]money.Nano {
		t.Helper()
		orgs, err := ledger.OrgsAt(t.Context(), d.Q, eur, at.Truncate(24*time.Hour), id.Org{}, 10)
		if err != nil {
			t.Fatal(err)
		}
		out := map[string]money.Nano{}
		for _, o := range orgs {
			out["deferred"] += o.Deferred
			out["payable"] += o.Payable
			out["receivable"] += o.Receivable
		}
		return out
	}
	if diff := cmp.Diff(map[string]money.Nano{"deferred": 19 * money.Unit, "payable": 850_000_000, "receivable": 0},
		of(day)); diff != "" {
		t.Error("three days ago:", diff)
	}
	if diff := cmp.Diff(map[string]money.Nano{"deferred": 21*money.Unit + 85, "payable": 850_000_000 - 85,
		"receivable": 0}, of(time.Now())); diff != "" {
		t.Error("now:", diff)
	}
	if before := of(day.AddDate(0, 0, -1)); len(before) != 0 {
		t.Error("before there was anything:", before)
	}
}

// matches adds up the journal of a period and compares it with the report's flows and balances.
func matches(t *testing.T, d *db.DB, days ledger.Days, r ledger.Report) {
	t.Helper()
	var text strings.Builder
	if err := ledger.JournalCSV(t.Context(), &text, d.Q, days, ""); err != nil {
		t.Fatal(err)
	}
	rows, err := csv.NewReader(strings.NewReader(text.String())).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	flows, moved := map[string]*big.Int{}, map[string]*big.Int{}
	add := func(to map[string]*big.Int, key, amount string, sign int64) {
		if to[key] == nil {
			to[key] = new(big.Int)
		}
		to[key].Add(to[key], new(big.Int).Mul(big.NewInt(sign), nano(t, amount)))
	}
	for _, row := range rows[1:] { // day, booked_at, entry, kind, debit, debit_org, credit, credit_org, amount, currency
		add(flows, row[0][:7]+" "+row[3]+" "+row[4]+" "+row[6]+" "+row[9], row[8], 1)
		add(moved, row[4], row[8], -1)
		add(moved, row[6], row[8], 1)
	}
	for _, f := range r.Flows {
		add(flows, f.Month+" "+f.Kind+" "+f.Debit+" "+f.Credit+" "+f.Currency, f.Amount, -1)
	}
	for key, left := range flows {
		if left.Sign() != 0 {
			t.Errorf("%s to %s, %s: the journal and the flows differ by %s", r.From, r.To, key, left)
		}
	}
	for _, a := range r.Accounts {
		add(moved, a.Kind, a.Closing, -1)
		add(moved, a.Kind, a.Opening, 1)
		if sum := new(big.Int).Sub(nano(t, a.Credits), nano(t, a.Debits)); sum.Add(sum, nano(t, a.Opening)).
			Cmp(nano(t, a.Closing)) != 0 {
			t.Errorf("%s: opening and movements are not the closing balance: %+v", a.Kind, a)
		}
	}
	for kind, left := range moved {
		if left.Sign() != 0 {
			t.Errorf("%s to %s, %s: the journal and the balances differ by %s", r.From, r.To, kind, left)
		}
	}
}

func nano(t *testing.T, s string) *big.Int {
	t.Helper()
	n, ok := new(big.Int).SetString(strings.Replace(s, ".", "", 1), 10)
	if !ok {
		t.Fatalf("amount %q", s)
	}
	return n
}

// The journal is read a page at a time, in its order, by kind or not.
func TestJournal_Pages(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t)
	org := billingtest.New(t, d).Org()
	var want []string
	for i := range 5 {
		key := fmt.Sprint("topup:", i)
		if _, err := post(t, d, topup(org, key, money.Unit)); err != nil {
			t.Fatal(err)
		}
		want = append(want, key)
		if i%2 == 0 {
			link(t, d)
		}
	}
	if _, err := post(t, d, take(org, "take", 1)); err != nil {
		t.Fatal(err)
	}
	link(t, d)
	today := time.Now().UTC().Format(time.DateOnly)
	days, err := ledger.ParseDays(today, today)
	if err != nil {
		t.Fatal(err)
	}
	days.From = days.From.AddDate(0, 0, -1) // midnight may pass meanwhile
	days.To = days.To.AddDate(0, 0, 1)
	var got []string
	for at := (ledger.Place{Position: -1}); ; {
		page, err := ledger.Journal(t.Context(), d.Q, days, "topup", at, 2)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range page {
			got = append(got, e.Key)
			if at, err = ledger.ParsePlace(e.Place.String()); err != nil {
				t.Fatal(err)
			}
		}
		if len(page) < 2 {
			break
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	all, err := ledger.Journal(t.Context(), d.Q, days, "", ledger.Place{Position: -1}, 10)
	if err != nil || len(all) != 6 || all[5].Kind != "authorise" {
		t.Error(all, err)
	}
	for _, bad := range []string{"x", "1", "1.2.3", "-"} {
		if _, err := ledger.ParsePlace(bad); err == nil {
			t.Errorf("%q is a place", bad)
		}
	}
}
