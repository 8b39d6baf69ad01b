package payout

import (
	"context"
	"log/slog"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/billing/ledger"
	"github.com/musterhq/muster/internal/billing/payment"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/idem"
	"github.com/musterhq/muster/internal/money"
	"github.com/musterhq/muster/internal/stripe"
	"github.com/musterhq/muster/internal/stripe/sandbox"
	"github.com/musterhq/muster/internal/testing/dbtest"
)

// admin is an operator who is paid, a renter who pays, and a Stripe that holds the money between.
type admin struct {
	*world
	k      *dbtest.Killer
	fake   *sandbox.Server
	pay    *payment.Payments
	p      *Payouts
	renter account.Principal
	boss   account.Principal // an admin
	owner  account.Principal // of the operator's org
}

func newAdmin(t *testing.T) *admin {
	t.Helper()
	d, k := dbtest.NewMortal(t)
	fake, err := sandbox.New(sandbox.Config{WebhookSecret: "whsec_x", PublicURL: "http://pay.test"})
	if err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewServer(fake)
	t.Cleanup(srv.Close)
	c, err := stripe.New(stripe.Config{Key: "sk_test_x", WebhookSecret: "whsec_x", URL: srv.URL})
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.DiscardHandler)
	pay, err := payment.New(d, c, payment.Config{
		Currency:      eur,
		DefaultMethod: "pm_card_visa",
		ReturnURL:     "http://m.test/billing",
		Sandbox:       true,
	}, log)
	if err != nil {
		t.Fatal(err)
	}
	p, err := New(d, pay, Config{Currency: eur, PageURL: "http://m.test/payouts", Sandbox: true}, log)
	if err != nil {
		t.Fatal(err)
	}
	x := &admin{
		world: &world{t, d, id.New[id.Org]()},
		k:     k,
		fake:  fake,
		pay:   pay,
		p:     p,
		boss:  account.Principal{User: id.New[id.User](), Admin: true},
	}
	x.owner = account.Principal{Org: x.operator, User: id.New[id.User](), Email: "o@b.c", OrgName: "o"}
	x.renter = account.Principal{Org: id.New[id.Org](), User: id.New[id.User](), Email: "a@b.c", OrgName: "r"}
	for _, o := range []id.Org{x.operator, x.renter.Org} {
		x.exec("INSERT INTO org (id, name, personal) VALUES ($1, 'o', true)", o)
	}
	return x
}

// funded returns a desk whose renter has paid in, and whose operator can be paid.
func funded(t *testing.T, paidIn money.Nano) *admin {
	t.Helper()
	x := newAdmin(t)
	x.topUp(paidIn)
	x.onboard()
	return x
}

func (x *admin) topUp(n money.Nano) payment.TopUp {
	x.t.Helper()
	top, _, err := x.pay.TopUp(x.t.Context(), x.renter, payment.TopUpRequest{Amount: n}, idem.Request{})
	if err != nil || top.State != payment.Succeeded {
		x.t.Fatal(top, err)
	}
	return top
}

func (x *admin) onboard() (acct string) {
	x.t.Helper()
	if _, _, err := x.p.Onboard(x.t.Context(), x.owner, "DE", idem.Request{}); err != nil {
		x.t.Fatal(err)
	}
	acct = x.fake.Accounts()[0]
	x.fake.Onboard(acct)
	x.deliver(x.fake.Deliveries())
	return acct
}

func (x *admin) exec(sql string, args ...any) {
	x.t.Helper()
	if _, err := x.d.Pool.Exec(x.t.Context(), sql, args...); err != nil {
		x.t.Fatal(err)
	}
}

// earn returns a renter's money for the operator's hosts.
func (x *admin) earn(n money.Nano) {
	x.t.Helper()
	x.post(ledger.Wallet(x.renter.Org, eur), ledger.HostPending(x.operator, eur), n)
}

// payable makes everything payable that may be.
func (x *admin) payable() {
	x.t.Helper()
	if _, err := Mature(x.t.Context(), x.d, 0); err != nil {
		x.t.Fatal(err)
	}
}

// due brings the day of the payout.
func (x *admin) due() {
	x.t.Helper()
	x.exec("UPDATE payout_account SET next_at = clock_timestamp() - interval '1 second', pay_at = 'epoch'")
}

func (x *admin) payDue() int {
	x.t.Helper()
	x.due()
	n, err := x.p.PayDue(x.t.Context())
	if err != nil {
		x.t.Fatal(err)
	}
	return n
}

// sendAll lets the time pass that rows wait for, and sends until nothing is left to say.
func (x *admin) sendAll() {
	x.t.Helper()
	for range 50 {
		x.exec("UPDATE stripe_outbox SET next_at = clock_timestamp() WHERE state IN ('pending', 'sent', 'unknown')")
		n, err := x.pay.SendDue(x.t.Context())
		if err != nil {
			x.t.Fatal(err)
		}
		if n == 0 {
			return
		}
	}
	x.t.Fatal("the outbox does not empty")
}

func (x *admin) deliver(ds []sandbox.Delivery) {
	x.t.Helper()
	for _, d := range ds {
		if err := x.pay.ReceiveWebhook(x.t.Context(), d.Payload, d.Signature); err != nil {
			x.t.Fatal(err)
		}
	}
	if _, err := x.pay.ProcessEvents(x.t.Context()); err != nil {
		x.t.Fatal(err)
	}
}

// sent asserts how many transfers the operator got, and what of them was not taken back.
func (x *admin) sent(what string, transfers int, net money.Nano) {
	x.t.Helper()
	if n, cents := x.fake.Transferred(""); n != transfers || money.Nano(cents)*money.Cent != net {
		x.t.Fatalf("%s: %d transfers of %d cents, want %d of %s", what, n, cents, transfers, net)
	}
}

func (x *admin) last() Payout {
	x.t.Helper()
	all, err := x.p.List(x.t.Context(), account.Principal{Admin: true}, x.operator, id.Payout{}, 1)
	if err != nil || len(all) != 1 {
		x.t.Fatal(all, err)
	}
	return all[0]
}

// square asserts that nothing is on its way and that Stripe and the ledger agrees to the last cent.
func (x *admin) square() {
	x.t.Helper()
	b, err := ledger.Check(x.t.Context(), x.d)
	if err != nil || !b.Balanced() {
		x.t.Fatal(b.Problems, err)
	}
	if n, err := ledger.Balance(x.t.Context(), x.d.Q, ledger.Transfers(eur)); err != nil || n != 0 {
		x.t.Fatalf("%s on its way, %v", n, err)
	}
	if _, err := x.pay.Reconcile(x.t.Context()); err != nil {
		x.t.Fatal(err)
	}
	r, err := x.pay.Reconciliation(x.t.Context(), x.boss)
	if err != nil || r.Difference != 0 || r.Waiting != 0 || r.Suspense != 0 {
		x.t.Fatalf("reconciliation: %+v %v", r, err)
	}
	if cents := x.fake.BalanceCents("eur"); r.Clearing != money.Nano(cents)*money.Cent {
		x.t.Fatalf("the books say that Stripe holds %s, and it holds %d cents", r.Clearing, cents)
	}
}

func TestTheScheduleIsWeeklyOnMondays(t *testing.T) {
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
	return failed(x.p.ChangeOperator(x.t.Context(), who, noFees{}, x.operator,
		OperatorChange{Stopped: &stop, Reason: reason}, idem.Request{}))
}
