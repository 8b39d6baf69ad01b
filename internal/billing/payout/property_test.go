package payout

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/musterhq/muster/internal/billing/ledger"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/idem"
	"github.com/musterhq/muster/internal/money"
	"github.com/musterhq/muster/internal/stripe/sandbox"
	"github.com/musterhq/muster/internal/testing/billingtest"
)

// ledgerHold earns for the operator as usage does: from the hold of one of the renter's clusters.
func ledgerHold(x *admin) func(money.Nano) {
	cl := id.New[id.Cluster]()
	return func(n money.Nano) {
		x.T.Helper()
		hold := ledger.Hold(x.renter.Org, cl, eur)
		x.Move(ledger.Wallet(x.renter.Org, eur), hold, n)
		x.Move(hold, ledger.HostPending(x.operator, eur), n)
	}
}

// The worker is killed at each statement of a payout in turn; its successor pays the operator once.
func TestPayout_KilledWorkerPaysOnce(t *testing.T) {
	t.Parallel()
	x := funded(t, 20_000*money.Unit)
	const each = 11 * money.Unit
	killed := 0
	for n := int64(1); ; n++ {
		if n > 200 {
			t.Fatal("a payout takes more than 200 statements")
		}
		x.earn(each)
		x.payable()
		x.due()
		x.k.Left.Store(n)
		_, err := x.p.PayDue(t.Context()) // its error is the worker's death
		done := x.k.Left.Swap(0) > 0
		if err == nil && !done {
			killed++ // after the decision: what is left to do is in the outbox
		}
		x.SendAll(x.p.out)
		x.Exec("UPDATE payout_account SET pay_at = 'epoch'") // a minute after the death
		if _, err := x.p.PayDue(t.Context()); err != nil {
			t.Fatal(err)
		}
		x.SendAll(x.p.out)
		x.sent(fmt.Sprint("killed at statement ", n), int(n), money.Nano(n)*each)
		if done {
			if n < 10 || killed < 3 {
				t.Fatalf("%d statements, %d of them after the decision: the killer does not kill", n, killed)
			}
			break
		}
	}
	x.want("in the end", 0, 0)
	x.square()
}

// Whatever fails, is lost after it took effect, comes twice, late or not at all, and wherever the worker dies: each
// nano-unit is paid at most once, what is not paid is still the operator's, and the ledger agrees with Stripe's
// balance.
func TestPayout_EachNanoUnitOnce(t *testing.T) {
	t.Parallel()
	for seed := range uint64(4) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			payAtRandom(t, rand.New(rand.NewPCG(seed, 42)))
		})
	}
}

func payAtRandom(t *testing.T, r *rand.Rand) {
	x := funded(t, 40_000*money.Unit)
	faults := []sandbox.Fault{sandbox.LostAnswer, sandbox.Truncated, sandbox.Error500, sandbox.RateLimited, sandbox.Down,
		sandbox.Refused, sandbox.InUse, sandbox.None, sandbox.None}
	var earned money.Nano // less what was given back
	var late []sandbox.Delivery
	ctx := t.Context()
	for range 120 {
		if r.IntN(3) == 0 {
			x.k.Left.Store(int64(1 + r.IntN(25))) // a later statement kills its process; the error does not matter
		}
		switch r.IntN(10) {
		case 0, 1, 2:
			x.k.Left.Store(0)
			n := money.Nano(1 + r.Int64N(int64(60*money.Unit)))
			x.earn(n)
			earned += n
		case 3:
			x.k.Left.Store(0)
			n := money.Nano(1 + r.Int64N(int64(5*money.Unit)))
			x.Move(ledger.HostPending(x.operator, eur), ledger.Wallet(x.renter.Org, eur), n) // for a host's fault
			earned -= n
		case 4:
			_, _ = Mature(ctx, x.DB, 0)
		case 5, 6:
			for range r.IntN(4) {
				x.fake.Faults.Fail(faults[r.IntN(len(faults))])
			}
			_, _ = x.DB.Pool.Exec(ctx, "UPDATE payout_account SET next_at = clock_timestamp() - interval '1 second', pay_at = "+
				"'epoch'")
			_, _ = x.p.PayDue(ctx)
		case 7:
			_, _ = x.DB.Pool.Exec(ctx, "UPDATE stripe_outbox SET next_at = clock_timestamp() WHERE state IN ('pending', "+
				"'sent', 'unknown')")
			_, _ = x.p.out.SendDue(ctx)
		case 8:
			for _, d := range append(late, x.fake.Webhooks.Deliveries()...) {
				for range r.IntN(3) { // lost, delivered, delivered twice
					_ = x.in.Receive(ctx, d.Payload, d.Signature)
				}
				if late = nil; r.IntN(3) == 0 {
					late = append(late, d)
				}
			}
			r.Shuffle(len(late), func(i, j int) { late[i], late[j] = late[j], late[i] })
			_, _ = x.in.Process(ctx)
		case 9:
			x.k.Left.Store(0)
			switch all := x.fake.Transfers.IDs(); {
			case len(all) > 0 && r.IntN(3) == 0:
				x.fake.Transfers.Reverse(all[r.IntN(len(all))], 1+r.Int64N(500))
			case len(all) > 0 && r.IntN(3) == 0 && x.last().State == Paid:
				err := billingtest.Err(x.p.Reverse(t.Context(), x.boss, ReversalRequest{
					Payout: x.last().ID,
					Amount: money.Unit,
					Reason: "a test",
				}, idem.Request{}))
				if err == nil { // too much is refused
					_ = x.stop(x.boss, false, "a test")
				}
			case r.IntN(3) == 0: // a day without an answer
				x.fake.Keys.Forget()
				x.Exec("UPDATE stripe_outbox SET first_sent_at = first_sent_at - interval '1 day' WHERE first_sent_at IS NOT " +
					"NULL AND done_at IS NULL")
			}
		}
		x.k.Left.Store(0)
		x.owed(earned)
	}
	x.fake.Faults.Heal()
	x.SendAll(x.p.out)
	x.Exec("UPDATE stripe_event SET next_at = clock_timestamp() WHERE processed_at IS NULL")
	x.Deliver(x.in, x.fake.Webhooks.Deliveries())
	x.square()
	x.owed(earned)
	n, cents := x.fake.Transfers.Total("")
	s, err := x.p.Standing(ctx, x.operator)
	if err != nil || s.Sending != 0 || s.Paid != money.Nano(cents)*money.Cent || n == 0 {
		t.Fatalf("%d transfers of %d cents at Stripe; %+v %v", n, cents, s, err)
	}
	var paid int
	if err := x.DB.Pool.QueryRow(ctx, "SELECT count(*) FROM payout WHERE state = 'paid'").Scan(&paid); err != nil ||
		paid != n {
		t.Fatalf("%d transfers for %d payouts, %v", n, paid, err)
	}
}

// owed asserts that what was earned is pending, payable, on its way or paid, to the nano-unit.
func (x *admin) owed(earned money.Nano) {
	x.T.Helper()
	var sum money.Nano
	for _, a := range []ledger.Account{ledger.HostPending(x.operator, eur), ledger.HostPayable(x.operator, eur),
		ledger.Transfers(eur)} {
		n, err := ledger.Balance(x.T.Context(), x.DB.Q, a)
		if err != nil {
			x.T.Fatal(err)
		}
		if a.Kind == ledger.KindHostPayable && n < 0 {
			x.T.Fatalf("payable is %s", n)
		}
		sum += n
	}
	var paid money.Nano
	if err := x.DB.Pool.QueryRow(x.T.Context(), "SELECT coalesce(sum(amount - reversed), 0)::bigint FROM payout WHERE "+
		"state = 'paid'").Scan(&paid); err != nil {
		x.T.Fatal(err)
	}
	if sum+paid != earned {
		x.T.Fatalf("%s earned; %s in the books and %s paid", earned, sum, paid)
	}
}
