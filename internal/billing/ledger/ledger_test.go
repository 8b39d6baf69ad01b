package ledger_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/musterhq/muster/internal/billing/ledger"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/money"
	"github.com/musterhq/muster/internal/testing/billingtest"
	"github.com/musterhq/muster/internal/testing/dbtest"
)

const eur = billingtest.EUR

func post(t *testing.T, d *db.DB, e ledger.Entry) (booked bool, err error) {
	t.Helper()
	err = d.InTx(t.Context(), func(ctx context.Context, tx *db.Tx) (err error) {
		booked, err = ledger.Post(ctx, tx, e)
		return err
	})
	return booked, err
}

func topup(org id.Org, key string, n money.Nano) ledger.Entry {
	return ledger.Entry{Kind: "topup", Key: key, Transfers: []ledger.Transfer{
		{Debit: ledger.StripeClearing(eur), Credit: ledger.Wallet(org, eur), Amount: n}}}
}

func TestPost_KeyBookedOnce(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t)
	org := billingtest.New(t, d).Org()
	var wg sync.WaitGroup
	var mu sync.Mutex
	n := 0
	for range 8 {
		wg.Go(func() {
			booked, err := post(t, d, topup(org, "topup:pi_1", 5*money.Unit))
			if err != nil {
				t.Error(err)
			}
			mu.Lock()
			defer mu.Unlock()
			if booked {
				n++
			}
		})
	}
	wg.Wait()
	if n != 1 || billingtest.New(t, d).Balance(ledger.Wallet(org, eur)) != 5*money.Unit ||
		billingtest.New(t, d).Balance(ledger.StripeClearing(eur)) != -5*money.Unit {
		t.Fatalf("booked %d times, wallet %s", n, billingtest.New(t, d).Balance(ledger.Wallet(org, eur)))
	}
	billingtest.New(t, d).MustBalance()
}

func TestPost_WalletNeverBelowZero(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t)
	org := billingtest.New(t, d).Org()
	if _, err := post(t, d, topup(org, "t", 10*money.Unit)); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for i := range 16 {
		wg.Go(func() {
			_, err := post(t, d, ledger.Entry{Kind: "authorise", Key: fmt.Sprint("a", i), Transfers: []ledger.Transfer{
				{Debit: ledger.Wallet(org, eur), Credit: ledger.Hold(org, id.New[id.Cluster](), eur), Amount: 3 * money.Unit}}})
			if err != nil && !fault.Is(err, fault.InsufficientFunds) {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	b, err := ledger.OrgBalances(t.Context(), d.Q, org, eur)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(ledger.Balances{Available: money.Unit, Held: 9 * money.Unit}, b); diff != "" {
		t.Fatal(diff)
	}
	billingtest.New(t, d).MustBalance()
}

func TestHistory_Immutable(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t)
	if _, err := post(t, d, topup(billingtest.New(t, d).Org(), "t", money.Unit)); err != nil {
		t.Fatal(err)
	}
	for _, sql := range []string{
		"UPDATE ledger_transfer SET amount = 1", "DELETE FROM ledger_transfer", "TRUNCATE ledger_transfer",
		"UPDATE ledger_tx SET memo = 'x'", "DELETE FROM ledger_tx", "TRUNCATE ledger_tx CASCADE",
	} {
		if _, err := d.Pool.Exec(t.Context(), sql); err == nil {
			t.Errorf("%s was allowed", sql)
		}
	}
}

func TestHistory_NewestFirst(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t)
	org, operator := billingtest.New(t, d).Org(), billingtest.New(t, d).Org()
	cl := id.New[id.Cluster]()
	hold := ledger.Hold(org, cl, eur)
	for _, e := range []ledger.Entry{
		topup(org, "1", 10*money.Unit),
		{
			Kind:      "authorise",
			Key:       "2",
			Transfers: []ledger.Transfer{{Debit: ledger.Wallet(org, eur), Credit: hold, Amount: 4 * money.Unit}},
		},
		{Kind: "usage", Key: "3", Ref: cl.String(), Transfers: []ledger.Transfer{
			{Debit: hold, Credit: ledger.HostPending(operator, eur), Amount: 2 * money.Unit},
			{Debit: hold, Credit: ledger.Fee(eur), Amount: money.Unit}}},
		{
			Kind:      "hold_release",
			Key:       "4",
			Transfers: []ledger.Transfer{{Debit: hold, Credit: ledger.Wallet(org, eur), Amount: money.Unit}},
		},
	} {
		if booked, err := post(t, d, e); err != nil || !booked {
			t.Fatal(booked, err)
		}
	}
	type row struct {
		Kind                                   string
		Available, Held, AvailableAfter, After money.Nano
	}
	want := []row{
		{"hold_release", 1, -1, 7, 0}, {"usage", 0, -3, 6, 1}, {"authorise", -4, 4, 6, 4}, {"topup", 10, 0, 10, 0},
	}
	walk := func(want []row, size int, between func()) {
		t.Helper()
		var got []row
		var before id.LedgerTx
		for { // running balances do not depend on the page, nor on what is in the chain already
			lines, err := ledger.History(t.Context(), d.Q, org, eur, before, size)
			if err != nil {
				t.Fatal(err)
			}
			for _, l := range lines {
				got = append(got, row{l.Kind, l.Change.Available / money.Unit, l.Change.Held / money.Unit,
					l.After.Available / money.Unit, l.After.Held / money.Unit})
				before = l.Tx
			}
			if len(lines) < size {
				break
			}
			between()
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatal(diff)
		}
	}
	link := func() {
		if _, err := ledger.Link(t.Context(), d, 0); err != nil {
			t.Fatal(err)
		}
	}
	walk(want, 3, func() {})
	walk(want, 2, link) // into the chain between two pages
	walk(want, 3, func() {})
	if _, err := post(t, d, topup(org, "5", 5*money.Unit)); err != nil {
		t.Fatal(err)
	}
	want = append([]row{{"topup", 5, 0, 12, 0}}, want...)
	walk(want, 1, func() {})
	link()
	walk(want, 4, func() {})
	foreign, err := ledger.History(t.Context(), d.Q, org, eur, id.New[id.LedgerTx](), 10)
	if err != nil || len(foreign) != 0 {
		t.Fatal(foreign, err)
	}
	earned, err := ledger.History(t.Context(), d.Q, operator, eur, id.LedgerTx{}, 10)
	if err != nil || len(earned) != 1 || earned[0].After.Earned != 2*money.Unit {
		t.Fatal(earned, err)
	}
	billingtest.New(t, d).MustBalance()
}

func TestPost_BadEntriesRefused(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t)
	org := billingtest.New(t, d).Org()
	for name, e := range map[string]ledger.Entry{
		"nothing moves": {Kind: "topup", Key: "k"},
		"no key":        {Kind: "topup", Transfers: topup(org, "", 1).Transfers},
		"zero":          topup(org, "k", 0),
		"negative":      topup(org, "k", -1),
		"to itself": {
			Kind:      "topup",
			Key:       "k",
			Transfers: []ledger.Transfer{{Debit: ledger.Fee(eur), Credit: ledger.Fee(eur), Amount: 1}},
		},
		"two currencies": {
			Kind:      "topup",
			Key:       "k",
			Transfers: []ledger.Transfer{{Debit: ledger.Fee("USD"), Credit: ledger.Fee(eur), Amount: 1}},
		},
		"unknown kind": {
			Kind:      "topup",
			Key:       "k",
			Transfers: []ledger.Transfer{{Debit: ledger.Account{Kind: "x", Currency: eur}, Credit: ledger.Fee(eur), Amount: 1}},
		},
	} {
		if _, err := post(t, d, e); err == nil {
			t.Errorf("%s: booked", name)
		}
	}
	billingtest.New(t, d).MustBalance()
}

// Random entries from many sides, some rolled back: the ledger balance after every one of them.
func TestLedger_AlwaysBalances(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t)
	orgs := []id.Org{billingtest.New(t, d).Org(), billingtest.New(t, d).Org(), billingtest.New(t, d).Org()}
	cl := []id.Cluster{id.New[id.Cluster](), id.New[id.Cluster]()}
	boom := errors.New("boom")
	var wg sync.WaitGroup
	for w := range 4 {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(7, uint64(w)))
			account := func() ledger.Account {
				switch o := orgs[r.IntN(3)]; r.IntN(5) {
				case 0:
					return ledger.Hold(orgs[0], cl[r.IntN(2)], eur)
				case 1:
					return ledger.HostPending(o, eur)
				case 2:
					return ledger.Fee(eur)
				case 3:
					return ledger.StripeClearing(eur)
				default:
					return ledger.Wallet(o, eur)
				}
			}
			for i := range 60 {
				entries := make([]ledger.Entry, 1+r.IntN(4))
				for j := range entries {
					entries[j] = ledger.Entry{Kind: "topup", Key: fmt.Sprint(r.IntN(400))}
					for len(entries[j].Transfers) < 1+j {
						a, b := account(), account()
						if a != b {
							entries[j].Transfers = append(entries[j].Transfers, ledger.Transfer{
								Debit:  a,
								Credit: b,
								Amount: money.Nano(1 + r.IntN(1000)),
							})
						}
					}
				}
				err := d.InTx(t.Context(), func(ctx context.Context, tx *db.Tx) error {
					if _, err := ledger.PostAll(ctx, tx, entries); err != nil {
						return err
					}
					if i%5 == 0 {
						return boom
					}
					return nil
				})
				if err != nil && !errors.Is(err, boom) && !fault.Is(err, fault.InsufficientFunds) {
					t.Error(err)
				}
				if i%20 == 0 {
					billingtest.New(t, d).MustBalance()
				}
			}
		})
	}
	wg.Wait()
	billingtest.New(t, d).MustBalance()
}

// What corrects a charge never exceeds it, however often and however many try at once; the parts are in proportion.
func TestCompensate_CappedAtTheCharge(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t)
	org, operator, cl := billingtest.New(t, d).Org(), billingtest.New(t, d).Org(), id.New[id.Cluster]()
	hold := ledger.Hold(org, cl, eur)
	for _, e := range []ledger.Entry{
		topup(org, "1", 10*money.Unit),
		{
			Kind:      "authorise",
			Key:       "2",
			Transfers: []ledger.Transfer{{Debit: ledger.Wallet(org, eur), Credit: hold, Amount: 4 * money.Unit}},
		},
		{Kind: "usage", Key: "usage:x:4", Ref: cl.String(), Transfers: []ledger.Transfer{
			{Debit: hold, Credit: ledger.HostPending(operator, eur), Amount: 3 * money.Unit},
			{Debit: hold, Credit: ledger.Fee(eur), Amount: money.Unit}}},
	} {
		if _, err := post(t, d, e); err != nil {
			t.Fatal(err)
		}
	}
	find := func(text string) ledger.Booked {
		t.Helper()
		found, err := ledger.Search(t.Context(), d.Q, text, id.LedgerTx{}, 10)
		if err != nil || len(found) == 0 {
			t.Fatal(found, err)
		}
		return found[0]
	}
	charge := find("usage:x:4")
	if find(charge.ID.String()).Key != "usage:x:4" || find(cl.String()).ID != charge.ID {
		t.Fatal("not found by id or by what it belongs to")
	}
	give := func(tx id.LedgerTx, n money.Nano) error {
		return d.InTx(t.Context(), func(ctx context.Context, x *db.Tx) error {
			_, err := ledger.Compensate(ctx, x, tx, n, "a reason")
			return err
		})
	}
	for name, c := range map[string]struct {
		tx   id.LedgerTx
		n    money.Nano
		kind fault.Kind
	}{
		"too much": {charge.ID, 4*money.Unit + 1, fault.Invalid}, "negative": {charge.ID, -1, fault.Invalid},
		"no charge": {find("1").ID, 0, fault.Conflict}, "unknown": {id.New[id.LedgerTx](), 0, fault.NotFound},
	} {
		if err := give(c.tx, c.n); !fault.Is(err, c.kind) {
			t.Errorf("%s: %v", name, err)
		}
	}
	var wg sync.WaitGroup
	for range 8 { // room for three
		wg.Go(func() {
			if err := give(charge.ID, money.Unit+1); err != nil && !fault.Is(err, fault.Invalid) {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if w, h := billingtest.New(t, d).Balance(ledger.Wallet(org, eur)),
		billingtest.New(t, d).Balance(ledger.HostPending(operator, eur)); w != 9*money.Unit+
		3 || h < money.Unit*3/4-3 || h > money.Unit*3/4+3 {
		t.Fatalf("wallet %s, the host keeps %s", w, h)
	}
	if err := give(charge.ID, 0); err != nil { // the rest
		t.Fatal(err)
	}
	if billingtest.New(t, d).Balance(ledger.Wallet(org, eur)) != 10*money.Unit ||
		billingtest.New(t, d).Balance(ledger.HostPending(operator, eur)) != 0 ||
		billingtest.New(t, d).Balance(ledger.Fee(eur)) != 0 {
		t.Fatal("not all was given back")
	}
	if err := give(charge.ID, 0); !fault.Is(err, fault.Invalid) {
		t.Fatal(err)
	}
	billingtest.New(t, d).MustBalance()
}

// An org's entries are found page by page, those in the chain and those not in it yet, and no one else's.
func TestSearch_ByOrg(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t)
	org, other := billingtest.New(t, d).Org(), billingtest.New(t, d).Org()
	for i := range 5 {
		for _, e := range []ledger.Entry{topup(org, fmt.Sprint("a", i), money.Unit),
			topup(other, fmt.Sprint("b", i), money.Unit)} {
			if _, err := post(t, d, e); err != nil {
				t.Fatal(err)
			}
		}
		if i == 2 {
			if _, err := ledger.Link(t.Context(), d, 0); err != nil {
				t.Fatal(err)
			}
		}
	}
	var got []string
	for before := (id.LedgerTx{}); ; {
		page, err := ledger.Search(t.Context(), d.Q, org.String(), before, 2)
		if err != nil {
			t.Fatal(err)
		}
		if len(page) == 0 {
			break
		}
		for _, b := range page {
			got = append(got, b.Key)
			before = b.ID
		}
	}
	if diff := cmp.Diff([]string{"a4", "a3", "a2", "a1", "a0"}, got); diff != "" {
		t.Error(diff)
	}
	if below, err := ledger.BelowZero(t.Context(), d.Q, 10); err != nil || len(below) != 0 {
		t.Error(below, err)
	}
}
