package payment

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/musterhq/muster/internal/billing/ledger"
	"github.com/musterhq/muster/internal/billing/tax"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/money"
	"github.com/musterhq/muster/internal/stripe"
	"github.com/musterhq/muster/internal/stripe/reconcile"
	"github.com/musterhq/muster/internal/testing/billingtest"
)

// tab is a platform with an org that pays afterwards, a Stripe with a clock that a test moves, and a noun that bills:
// it makes each invoice what it wants, whatever the meter counted.
type tab struct {
	*shop
	ahead atomic.Int64 // of the real time, seconds
	used  money.Micro  // in all

	mu      sync.Mutex
	sub     stripe.Subscription
	wanted  map[string]int64 // cents, by invoice
	refused []string         // kinds
}

func newTab(t testing.TB, d *db.DB, card string) *tab {
	t.Helper()
	b := &tab{wanted: map[string]int64{}}
	w := billingtest.New(t, d)
	b.shop = newShopAt(w, w.Stripe(b.now, 0), card)
	b.p.Invoices.Bill(Biller{
		Subscription: b.subscription,
		Invoice:      b.invoice,
		Refused:      b.refuse,
		Taxable:      func(context.Context, id.Org, stripe.Invoice) (int64, bool, error) { return 0, false, nil },
		TakenBack: func(ctx context.Context, tx *db.Tx, org id.Org, _ string, more []ledger.Account,
			book func(context.Context, *ledger.Locked, tax.Tax) error) error {
			books, err := ledger.Lock(ctx, tx, append(more, ledger.Wallet(org, "EUR"), ledger.Receivable(org, "EUR"),
				ledger.StripeClearing("EUR"), ledger.Goodwill("EUR"))...)
			if err != nil {
				return err
			}
			return book(ctx, books, tax.Tax{})
		},
	})
	return b
}

func (b *tab) now() time.Time { return time.Now().Add(time.Duration(b.ahead.Load()) * time.Second) }

func (b *tab) move(d time.Duration) { b.ahead.Add(int64(d / time.Second)) }

func (b *tab) subscription(_ context.Context, _ *db.Tx, org id.Org, s stripe.Subscription) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if org != b.payer.Org {
		return fmt.Errorf("%s is not %s", org, b.payer.Org)
	}
	b.sub = s
	return nil
}

func (b *tab) refuse(_ context.Context, _ *db.Tx, kind, _ string, _ *stripe.Error) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.refused = append(b.refused, kind)
	return nil
}

func (b *tab) invoice(ctx context.Context, tx *db.Tx, org id.Org, in stripe.Invoice, _ BillTax) (string, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if org != b.payer.Org {
		return "", fmt.Errorf("%s is not %s", org, b.payer.Org)
	}
	if in.Status == stripe.InvoiceDraft {
		want, seen := b.wanted[in.ID]
		if !seen {
			want = int64(b.used / 10_000)
			for _, w := range b.wanted {
				want -= w
			}
			b.wanted[in.ID] = want
		}
		var lines []BillLine
		if want != in.Metered {
			lines = []BillLine{{Ref: "residue", Description: "Residue", Cents: want - in.Metered}}
		}
		_, err := b.p.Invoices.Close(ctx, tx, org, in.ID, lines)
		return "", err
	}
	b.wanted[in.ID] = in.Total // final
	if e, any := InvoicePaid(org, in); any {
		_, err := ledger.Post(ctx, tx, e)
		return "", err
	}
	return "nothing came", nil
}

// do runs f in a transaction.
func (b *tab) do(f func(ctx context.Context, tx *db.Tx) ([]id.Outbox, error)) []id.Outbox {
	b.T.Helper()
	var rows []id.Outbox
	if err := b.DB.InTx(context.Background(), func(ctx context.Context, tx *db.Tx) (err error) {
		rows, err = f(ctx, tx)
		return err
	}); err != nil {
		b.T.Fatal(err)
	}
	return rows
}

func (b *tab) subscribe() []id.Outbox {
	b.T.Helper()
	return b.do(func(ctx context.Context, tx *db.Tx) ([]id.Outbox, error) {
		return b.p.Invoices.Subscribe(ctx, tx, b.payer.Org)
	})
}

// use books usage and reports it.
func (b *tab) use(v money.Micro) (identifier string) {
	b.T.Helper()
	identifier = id.New[id.LedgerTx]().String()
	b.used += v
	b.do(func(ctx context.Context, tx *db.Tx) ([]id.Outbox, error) {
		if _, err := ledger.Post(ctx, tx, ledger.Entry{Kind: "usage", Key: identifier, Transfers: []ledger.Transfer{{
			Debit: ledger.Receivable(b.payer.Org, "EUR"), Credit: ledger.Fee("EUR"), Amount: v.Nano()}}}); err != nil {
			return nil, err
		}
		return b.p.Invoices.ReportUsage(ctx, tx, b.payer.Org, identifier, v, b.now())
	})
	b.move(time.Minute)
	return identifier
}

func (b *tab) customer() string {
	b.T.Helper()
	c, err := b.DB.Q.StripeCustomer(context.Background(), b.payer.Org)
	if err != nil {
		b.T.Fatal(err)
	}
	return c.CustomerID
}

func (b *tab) reconcile() reconcile.Result {
	b.T.Helper()
	r, err := b.rec.Reconcile(context.Background())
	if err != nil {
		b.T.Fatal(err)
	}
	return r
}

func (b *tab) refresh() {
	b.T.Helper()
	if err := b.p.Invoices.RefreshBilling(context.Background(), b.payer.Org, b.sub.ID); err != nil {
		b.T.Fatal(err)
	}
}

// even asserts that the ledger and Stripe agree on Stripe's balance and on what is owed.
func (b *tab) even(paidCents int64) {
	b.T.Helper()
	balance := func(a ledger.Account) money.Nano {
		n, err := ledger.Balance(context.Background(), b.DB.Q, a)
		if err != nil {
			b.T.Fatal(err)
		}
		return n
	}
	if got, want := -balance(ledger.Receivable(b.payer.Org, "EUR")),
		b.used.Nano()-money.Nano(paidCents)*money.Cent; got != want {
		b.T.Fatalf("owed %s, want %s", got, want)
	}
	if got, want := -balance(ledger.StripeClearing("EUR")),
		money.Nano(b.stripe.Balance.Cents("eur"))*money.Cent; got != want {
		b.T.Fatalf("clearing %s, Stripe has %s", got, want)
	}
	if x, err := ledger.Check(context.Background(), b.DB); err != nil || !x.Balanced() {
		b.T.Fatal(x.Problems, err)
	}
	var open int
	if err := b.DB.Pool.QueryRow(context.Background(),
		"SELECT count(*) FROM stripe_balance WHERE state <> 'matched'").Scan(&open); err != nil || open != 0 {
		b.T.Fatal(open, "changes of Stripe's balance without an entry", err)
	}
}
