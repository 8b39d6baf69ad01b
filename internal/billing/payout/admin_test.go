package payout

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/billing/ledger"
	"github.com/musterhq/muster/internal/billing/payment"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/idem"
	"github.com/musterhq/muster/internal/money"
	"github.com/musterhq/muster/internal/stripe/events"
	"github.com/musterhq/muster/internal/stripe/outbox"
	"github.com/musterhq/muster/internal/stripe/reconcile"
	"github.com/musterhq/muster/internal/testing/billingtest"
	"github.com/musterhq/muster/internal/testing/dbtest"
)

// admin is an operator who is paid, a renter who pays, and a Stripe that holds the money between.
type admin struct {
	*world
	k      *dbtest.Killer
	fake   *billingtest.Stripe
	pay    *payment.Payments
	in     *events.Inbox
	rec    *reconcile.Reconciler
	p      *Payouts
	renter account.Principal
	boss   account.Principal // an admin
	owner  account.Principal // of the operator's org
}

func newAdmin(t *testing.T) *admin {
	t.Helper()
	d, k := dbtest.NewMortal(t)
	w := billingtest.New(t, d)
	fake := w.Stripe(nil, 0)
	log := slog.New(slog.DiscardHandler)
	out := outbox.New(d, fake.Client, log)
	in := events.New(d, fake.Client, log)
	pay, err := payment.New(d, out, in, payment.Config{
		Currency:      eur,
		DefaultMethod: "pm_card_visa",
		ReturnURL:     "http://m.test/billing",
		Sandbox:       true,
	}, log)
	if err != nil {
		t.Fatal(err)
	}
	p, err := New(d, out, in, Config{Currency: eur, PageURL: "http://m.test/payouts", Sandbox: true}, log)
	if err != nil {
		t.Fatal(err)
	}
	x := &admin{
		world: &world{w, w.Org()},
		k:     k,
		fake:  fake,
		pay:   pay,
		in:    in,
		rec:   reconcile.New(d, fake.Client, in.Refresh, eur, log),
		p:     p,
		boss:  account.Principal{User: id.New[id.User](), Admin: true},
	}
	x.owner = account.Principal{Org: x.operator, User: id.New[id.User](), Email: "o@b.c", OrgName: "o"}
	x.renter = account.Principal{Org: w.Org(), User: id.New[id.User](), Email: "a@b.c", OrgName: "r"}
	return x
}

// funded returns a world whose renter has paid in, and whose operator can be paid.
func funded(t *testing.T, paidIn money.Nano) *admin {
	t.Helper()
	x := newAdmin(t)
	x.topUp(paidIn)
	x.onboard()
	return x
}

func (x *admin) topUp(n money.Nano) payment.TopUp {
	x.T.Helper()
	top, _, err := x.pay.TopUps.Create(x.T.Context(), x.renter, payment.TopUpRequest{Amount: n}, idem.Request{})
	if err != nil || top.State != payment.Succeeded {
		x.T.Fatal(top, err)
	}
	return top
}

func (x *admin) onboard() (acct string) {
	x.T.Helper()
	if _, _, err := x.p.Onboard(x.T.Context(), x.owner, "DE", idem.Request{}); err != nil {
		x.T.Fatal(err)
	}
	acct = x.fake.Accounts.IDs()[0]
	x.fake.Accounts.Onboard(acct)
	x.Deliver(x.in, x.fake.Webhooks.Deliveries())
	return acct
}

// earn books a renter's money for the operator's hosts.
func (x *admin) earn(n money.Nano) {
	x.T.Helper()
	x.Move(ledger.Wallet(x.renter.Org, eur), ledger.HostPending(x.operator, eur), n)
}

// payable makes everything payable that may be.
func (x *admin) payable() {
	x.T.Helper()
	if _, err := Mature(x.T.Context(), x.DB, 0); err != nil {
		x.T.Fatal(err)
	}
}

// due brings the day of the payout.
func (x *admin) due() {
	x.T.Helper()
	x.Exec("UPDATE payout_account SET next_at = clock_timestamp() - interval '1 second', pay_at = 'epoch'")
}

func (x *admin) payDue() int {
	x.T.Helper()
	x.due()
	n, err := x.p.PayDue(x.T.Context())
	if err != nil {
		x.T.Fatal(err)
	}
	return n
}

// sent asserts how many transfers the operator got, and what of them was not taken back.
func (x *admin) sent(what string, transfers int, net money.Nano) {
	x.T.Helper()
	if n, cents := x.fake.Transfers.Total(""); n != transfers || money.Nano(cents)*money.Cent != net {
		x.T.Fatalf("%s: %d transfers of %d cents, want %d of %s", what, n, cents, transfers, net)
	}
}

func (x *admin) last() Payout {
	x.T.Helper()
	all, err := x.p.List(x.T.Context(), account.Principal{Admin: true}, x.operator, id.Payout{}, 1)
	if err != nil || len(all) != 1 {
		x.T.Fatal(all, err)
	}
	return all[0]
}

// square asserts that nothing is on its way and that Stripe and the ledger agrees to the last cent.
func (x *admin) square() {
	x.T.Helper()
	b, err := ledger.Check(x.T.Context(), x.DB)
	if err != nil || !b.Balanced() {
		x.T.Fatal(b.Problems, err)
	}
	if n, err := ledger.Balance(x.T.Context(), x.DB.Q, ledger.Transfers(eur)); err != nil || n != 0 {
		x.T.Fatalf("%s on its way, %v", n, err)
	}
	if _, err := x.rec.Reconcile(x.T.Context()); err != nil {
		x.T.Fatal(err)
	}
	r, err := x.rec.Reconciliation(x.T.Context(), x.boss)
	if err != nil || r.Difference != 0 || r.Waiting != 0 || r.Suspense != 0 {
		x.T.Fatalf("reconciliation: %+v %v", r, err)
	}
	if cents := x.fake.Balance.Cents("eur"); r.Clearing != money.Nano(cents)*money.Cent {
		x.T.Fatalf("the books say that Stripe holds %s, and it holds %d cents", r.Clearing, cents)
	}
}

func TestSchedule_WeeklyOnMondays(t *testing.T) {
	t.Parallel()
	day := func(s string) time.Time {
		at, err := time.Parse(time.RFC3339, s)
		if err != nil {
			t.Fatal(err)
		}
		return at
	}
	for now, want := range map[string]string{
		"2026-11-22T01:00:00Z":      "2026-11-23T06:00:00Z", // a Sunday
		"2026-11-23T05:59:59Z":      "2026-11-23T06:00:00Z",
		"2026-11-23T06:00:00Z":      "2026-11-30T06:00:00Z",
		"2026-11-24T23:00:00+02:00": "2026-11-30T06:00:00Z",
		"1999-01-01T00:00:00Z":      "1999-01-04T06:00:00Z",
	} {
		if got := next(day(now), DefaultEvery); !got.Equal(day(want)) {
			t.Errorf("after %s: %s, want %s", now, got, want)
		}
	}
	if a, b := retryAfter(1), retryAfter(99); a != time.Hour || b != 24*time.Hour {
		t.Error(a, b)
	}
}

// noFees are fees that no test changes.
type noFees struct{}

func (noFees) Fee(context.Context, id.Org) (int, error) { return 0, nil }

func (noFees) SetFee(context.Context, *db.Tx, account.Principal, id.Org, int, string) error {
	return nil
}

// stop stops payouts to the operator, or resumes them.
func (x *admin) stop(who account.Principal, stop bool, reason string) error {
	return billingtest.Err(x.p.ChangeOperator(x.T.Context(), who, noFees{}, x.operator,
		OperatorChange{Stopped: &stop, Reason: reason}, idem.Request{}))
}
