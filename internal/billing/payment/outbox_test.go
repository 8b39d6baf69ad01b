package payment

import (
	"context"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/idem"
	"github.com/musterhq/muster/internal/money"
	"github.com/musterhq/muster/internal/stripe/sandbox"
	"github.com/musterhq/muster/internal/testing/dbtest"
)

// Whatever happens to the first requests, the card is charged exactly once and credited exactly once.
func TestOutbox_EveryFaultChargesOnce(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t)
	all := []sandbox.Fault{sandbox.LostAnswer, sandbox.Truncated, sandbox.Error500, sandbox.Timeout,
		sandbox.RateLimited, sandbox.Down, sandbox.Refused, sandbox.InUse, sandbox.Slow}
	for _, f := range all {
		t.Run(string(f), func(t *testing.T) {
			t.Parallel()
			patience := 30 * time.Second
			if f == sandbox.Timeout {
				patience = time.Second
			}
			s := newShopWith(t, d, "pm_card_visa", patience)
			s.stripe.Faults.Fail(f, sandbox.None, f, f) // the customer once, then the payment twice
			first := s.topUp(7 * money.Unit)
			s.sendMine()
			s.want(first, Succeeded)
			n, cents := s.stripe.Charges.Total()
			if n != 1 || cents != 700 || s.wallet() != 7*money.Unit {
				t.Fatalf("charged %d times, %d cents, wallet %s", n, cents, s.wallet())
			}
		})
	}
}

// sendMine is sendAll in a database that several shops share: a row of another shop would go to this shop's Stripe.
func (s *shop) sendMine() {
	s.T.Helper()
	for range 10 {
		rows, err := s.DB.Pool.Query(context.Background(), `UPDATE stripe_outbox SET next_at = clock_timestamp()
			WHERE state IN ('pending', 'sent', 'unknown') AND (ref = $1 OR ref IN (SELECT o.ref FROM stripe_outbox o WHERE
			o.params->>'org' = $1)
			OR idem_key = ANY($2)) RETURNING id`, s.payer.Org.String(), s.keys())
		if err != nil {
			s.T.Fatal(err)
		}
		var ids []id.Outbox
		for rows.Next() {
			var o id.Outbox
			if err := rows.Scan(&o); err != nil {
				s.T.Fatal(err)
			}
			ids = append(ids, o)
		}
		if len(ids) == 0 {
			return
		}
		for _, o := range ids { // one by one: SendNow leaves the rest when one fails
			s.p.core.out.SendNow(context.Background(), []id.Outbox{o})
		}
	}
	s.T.Fatal("the outbox does not empty")
}

func (s *shop) keys() (keys []string) {
	s.T.Helper()
	list, err := s.p.TopUps.List(context.Background(), s.payer.Org, id.TopUp{}, 1000)
	if err != nil {
		s.T.Fatal(err)
	}
	for _, t := range list {
		keys = append(keys, topupKey(t.ID))
	}
	return keys
}

// A sender that died in the middle of a call leaves its row to the next one, under the same key.
func TestOutbox_DeadSenderReplaced(t *testing.T) {
	t.Parallel()
	s := newShop(t, "pm_card_visa")
	s.topUp(money.Unit) // the customer is made
	s.stripe.Faults.Fail(sandbox.Error500)
	second := s.topUp(3 * money.Unit)
	s.want(second, Pending)
	s.Exec("UPDATE stripe_outbox SET state = 'sent', next_at = clock_timestamp() + interval '90 seconds' WHERE state = " +
		"'unknown'")
	if n, err := s.p.core.out.SendDue(t.Context()); n != 0 || err != nil {
		t.Fatal(n, err)
	}
	s.SendAll(s.p.core.out)
	s.want(second, Succeeded)
	s.square(2)
}

// A day later Stripe has forgotten the key: what happened is looked up, and nothing is charged again.
func TestOutbox_ForgottenKeyLookedUp(t *testing.T) {
	t.Parallel()
	s := newShop(t, "pm_card_visa")
	s.topUp(money.Unit)
	s.stripe.Faults.Fail(sandbox.Error500, sandbox.Down)
	charged, refused := s.topUp(3*money.Unit), s.topUp(4*money.Unit)
	s.want(charged, Pending)
	s.want(refused, Pending)
	s.stripe.Keys.Forget()
	s.Exec("UPDATE stripe_outbox SET first_sent_at = first_sent_at - interval '1 day' WHERE state = 'unknown'")
	s.SendAll(s.p.core.out)
	s.want(charged, Succeeded)
	if got := s.want(refused, Failed); got.Failure == "" {
		t.Fatal("no reason")
	}
	s.square(2)
}

// Many payers, many senders, random faults: every top-up ends charged once or not at all, and the ledger shows it.
func TestOutbox_ManySendersRandomFaults(t *testing.T) {
	t.Parallel()
	s := newShop(t, "pm_card_visa")
	r := rand.New(rand.NewPCG(9, 9))
	kinds := []sandbox.Fault{sandbox.None, sandbox.None, sandbox.LostAnswer, sandbox.Error500, sandbox.RateLimited,
		sandbox.Refused, sandbox.Truncated, sandbox.InUse, sandbox.Slow}
	for range 60 {
		s.stripe.Faults.Fail(kinds[r.IntN(len(kinds))])
	}
	var wg sync.WaitGroup
	for i := range 20 {
		wg.Go(func() {
			if _, _, err := s.p.TopUps.Create(context.Background(), s.payer, TopUpRequest{Amount: money.Nano(1+i) * money.Unit},
				idem.Request{}); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	for range 6 {
		s.Exec("UPDATE stripe_outbox SET next_at = clock_timestamp() WHERE state IN ('pending', 'sent', 'unknown')")
		for range 4 {
			wg.Go(func() {
				if _, err := s.p.core.out.SendDue(context.Background()); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		s.deliver(s.stripe.Webhooks.Deliveries())
	}
	s.SendAll(s.p.core.out)
	s.square(20)
	if s.wallet() != 210*money.Unit {
		t.Fatal(s.wallet())
	}
}

// An org's first top-up makes its customer and then the payment. Senders in the background do not come between.
func TestOutbox_CustomerSentFirst(t *testing.T) {
	t.Parallel()
	s := newShop(t, "pm_card_visa")
	ctx, stop := context.WithCancel(t.Context())
	var senders sync.WaitGroup
	for range 4 {
		senders.Go(func() {
			for ctx.Err() == nil {
				if _, err := s.p.core.out.SendDue(ctx); err != nil && ctx.Err() == nil {
					t.Error(err)
				}
			}
		})
	}
	for range 30 {
		s.payer.Org = s.Org()
		if top := s.topUp(money.Unit); top.State == Succeeded {
			continue
		}
		// A call that Stripe answered late may be left to the senders; one that found no customer was overtaken.
		var overtaken bool
		err := s.p.core.d.Pool.QueryRow(ctx, "SELECT count(*) > 0 FROM stripe_outbox WHERE error LIKE '%' || $1 || '%'",
			errNoCustomer.Message).Scan(&overtaken)
		if err != nil || overtaken {
			t.Errorf("a payment was sent before its customer was made: %v, %v", overtaken, err)
		}
	}
	stop()
	senders.Wait()
}
