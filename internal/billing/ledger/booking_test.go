package ledger_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/musterhq/muster/internal/billing/ledger"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/money"
	"github.com/musterhq/muster/internal/testing/billingtest"
	"github.com/musterhq/muster/internal/testing/dbtest"
)

func write(ctx context.Context, d *db.DB, entries ...ledger.Entry) error {
	return d.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		booking, err := ledger.Prepare(ctx, tx, entries)
		if err != nil {
			return err
		}
		b := &pgx.Batch{}
		booking.QueueWrite(b)
		return tx.Send(ctx, b)
	})
}

func charge(key string, from ledger.Account, operator id.Org, n money.Nano) ledger.Entry {
	return ledger.Entry{
		Kind: "usage",
		Key:  key,
		Transfers: []ledger.Transfer{
			{
				Debit:  from,
				Credit: ledger.HostPending(operator, eur),
				Amount: n,
			}, {Debit: from, Credit: ledger.Fee(eur), Amount: 1}},
	}
}

// What is prepared and written moves the same money as what is posted, and the database guards keys and floors.
func TestBooking_AllOrNothing(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t)
	org, operator := billingtest.New(t, d).Org(), billingtest.New(t, d).Org()
	hold := ledger.Hold(org, id.New[id.Cluster](), eur)
	if _, err := post(t, d, ledger.Entry{
		Kind:      "topup",
		Key:       "1",
		Transfers: []ledger.Transfer{{Debit: ledger.StripeClearing(eur), Credit: hold, Amount: 100}},
	}); err != nil {
		t.Fatal(err)
	}
	if err := write(t.Context(), d, charge("a", hold, operator, 29), charge("b", hold, operator, 39)); err != nil {
		t.Fatal(err)
	}
	for what, entries := range map[string][]ledger.Entry{
		"a key that is in the books": {charge("c", hold, operator, 1), charge("a", hold, operator, 1)},
		"more than is held":          {charge("c", hold, operator, 10), charge("d", hold, operator, 20)},
		"nothing":                    {{Kind: "usage", Key: "c"}},
		"what corrects": {{
			Kind:      "usage",
			Key:       "c",
			Corrects:  id.New[id.LedgerTx](),
			Transfers: charge("c", hold, operator, 1).Transfers,
		}},
	} {
		if err := write(t.Context(), d, entries...); err == nil {
			t.Errorf("%s is booked", what)
		}
	}
	if got := [3]money.Nano{billingtest.New(t, d).Balance(hold),
		billingtest.New(t, d).Balance(ledger.HostPending(operator, eur)),
		billingtest.New(t, d).Balance(ledger.Fee(eur))}; got != [3]money.Nano{30, 68, 2} {
		t.Errorf("the balances are %v", got)
	}
	billingtest.New(t, d).MustBalance()
}

// Many book between the same accounts at once, some of which do not exist yet, along with others that lock first: no
// one waits forever, and every nano-unit arrives.
func TestBooking_ConcurrentWithPost(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t)
	org := billingtest.New(t, d).Org()
	operators := []id.Org{billingtest.New(t, d).Org(), billingtest.New(t, d).Org(), billingtest.New(t, d).Org()}
	var holds []ledger.Account
	for k := range 4 {
		h := ledger.Hold(org, id.New[id.Cluster](), eur)
		holds = append(holds, h)
		if _, err := post(t, d, ledger.Entry{
			Kind:      "topup",
			Key:       fmt.Sprint(k),
			Transfers: []ledger.Transfer{{Debit: ledger.StripeClearing(eur), Credit: h, Amount: money.Unit}},
		}); err != nil {
			t.Fatal(err)
		}
	}
	const workers, rounds = 4, 40
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(11, uint64(w)))
			for i := range rounds {
				var entries []ledger.Entry
				for j := range 4 {
					entries = append(entries, charge(fmt.Sprintf("usage:%d:%d:%d", w, i, j), holds[r.IntN(4)], operators[r.IntN(3)],
						money.Nano(1+r.IntN(100))))
				}
				var err error
				if w%2 == 0 {
					err = write(t.Context(), d, entries...)
				} else {
					err = d.InTx(t.Context(), func(ctx context.Context, tx *db.Tx) error {
						_, err := ledger.PostAll(ctx, tx, entries)
						return err
					})
				}
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	billingtest.New(t, d).MustBalance()
	if fee := billingtest.New(t, d).Balance(ledger.Fee(eur)); fee != workers*rounds*4 {
		t.Errorf("%s of fees", fee)
	}
}
