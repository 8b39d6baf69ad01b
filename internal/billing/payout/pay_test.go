package payout

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/idem"
	"github.com/musterhq/muster/internal/money"
	"github.com/musterhq/muster/internal/stripe/sandbox"
	"github.com/musterhq/muster/internal/testing/billingtest"
)

func TestPayout_Paid(t *testing.T) {
	t.Parallel()
	x := newAdmin(t)
	x.topUp(1000 * money.Unit)
	x.earn(30*money.Unit + 5_000_007) // half a cent and a little
	x.payable()
	state := func(want AccountState) Account {
		t.Helper()
		a, err := x.p.Account(t.Context(), x.operator)
		if err != nil || a.State != want {
			t.Fatalf("%+v, %v; want %s", a, err, want)
		}
		return a
	}
	state(NoAccount)
	if _, _, err := x.p.Onboard(t.Context(), x.owner, "Germany", idem.Request{}); fault.KindOf(err) != fault.Invalid {
		t.Fatal(err)
	}
	if url, _, err := x.p.Onboard(t.Context(), x.owner, "DE", idem.Request{}); err != nil || url == "" {
		t.Fatal(url, err)
	}
	if a := state(Incomplete); len(a.Due) == 0 || a.NextAt == nil {
		t.Fatalf("%+v", a)
	}
	if n := x.payDue(); n != 0 {
		t.Fatal("paid into an account that cannot receive")
	}
	acct := x.fake.Accounts.IDs()[0]
	x.fake.Accounts.Onboard(acct, "external_account")
	x.Deliver(x.in, x.fake.Webhooks.Deliveries())
	if a := state(Incomplete); len(a.Due) != 1 || a.Due[0] != "external_account" {
		t.Fatalf("%+v", a)
	}
	x.fake.Accounts.Onboard(acct)
	x.fake.Webhooks.Deliveries() // the event is lost, and the operator comes back
	if err := x.p.RefreshAccount(t.Context(), x.operator); err != nil {
		t.Fatal(err)
	}
	state(Ready)
	if _, _, err := x.p.Onboard(t.Context(), x.owner, "", idem.Request{}); err != nil || len(x.fake.Accounts.IDs()) != 1 {
		t.Fatal(err, x.fake.Accounts.IDs())
	}
	if n := x.payDue(); n != 1 {
		t.Fatal(n)
	}
	if got := x.last(); got.State != Paid || got.Amount != 30*money.Unit || got.Transfer != x.fake.Transfers.IDs()[0] ||
		got.SettledAt == nil {
		t.Fatalf("%+v", got)
	}
	x.want("what is left of a cent", 0, 5_000_007)
	if n, err := x.p.PayDue(t.Context()); n != 0 || err != nil {
		t.Fatal("paid before its time", n, err)
	}
	x.earn(9*money.Unit + 995_000_000)
	x.payable()
	if x.payDue() != 1 {
		t.Fatal("the rest of a cent and the new earnings reach the minimum")
	}
	x.earn(9 * money.Unit)
	x.payable()
	if x.payDue() != 0 {
		t.Fatal("less than the minimum was paid")
	}
	x.sent("in the end", 2, 40*money.Unit)
	s, err := x.p.Standing(t.Context(), x.operator)
	if err != nil || s.Paid != 40*money.Unit || s.Sending != 0 || s.Payable != 9*money.Unit+7 {
		t.Fatalf("%+v %v", s, err)
	}
	x.square()
	if _, err := x.p.Get(t.Context(), x.renter.Org, x.last().ID); fault.KindOf(err) != fault.NotFound {
		t.Fatal("another org's payout is shown", err)
	}
}

func TestOnboard_RefusedAccountRetried(t *testing.T) {
	t.Parallel()
	x := newAdmin(t)
	x.fake.Faults.Fail(sandbox.RateLimited)
	if _, _, err := x.p.Onboard(t.Context(), x.owner, "DE", idem.Request{}); fault.KindOf(err) != fault.Unavailable {
		t.Fatal(err)
	}
	if a, err := x.p.Account(t.Context(), x.operator); err != nil || a.State != Making {
		t.Fatalf("%+v %v", a, err)
	}
	x.SendAll(x.p.out)
	if url, _, err := x.p.Onboard(t.Context(), x.owner, "DE", idem.Request{}); err != nil || url == "" ||
		len(x.fake.Accounts.IDs()) != 1 {
		t.Fatal(url, err)
	}
}

// An account that stops being good stops payouts until it is good again, and its owner is notified.
func TestOnboard_MoreInformationNeeded(t *testing.T) {
	t.Parallel()
	x := funded(t, 1000*money.Unit)
	acct := x.fake.Accounts.IDs()[0]
	x.earn(20 * money.Unit)
	x.payable()
	x.fake.Accounts.Onboard(acct, "individual.verification.document") // and the event has not come yet
	if x.payDue() != 1 {
		t.Fatal("not tried")
	}
	if got := x.last(); got.State != Failed || got.Failure == "" {
		t.Fatalf("%+v", got)
	}
	x.want("a failed payout is payable again", 0, 20*money.Unit)
	x.Deliver(x.in, x.fake.Webhooks.Deliveries())
	if x.payDue() != 0 {
		t.Fatal("paid into an account that is known to be off")
	}
	var notices int
	if err := x.DB.Pool.QueryRow(t.Context(), "SELECT count(*) FROM notice WHERE org_id = $1",
		x.operator).Scan(&notices); err != nil || notices != 2 {
		t.Fatal(notices, err)
	}
	x.fake.Accounts.Onboard(acct)
	x.Exec("UPDATE payout_account SET checked_at = clock_timestamp() - interval '2 days'")
	if n, err := x.p.PollAccounts(t.Context()); n != 1 || err != nil { // no event at all
		t.Fatal(n, err)
	}
	if x.payDue() != 1 {
		t.Fatal("not paid")
	}
	x.sent("in the end", 1, 20*money.Unit)
	x.square()
}

// A payout for which Stripe holds too little waits, and is paid as the same payout once there is enough.
func TestPayout_WaitsForFunds(t *testing.T) {
	t.Parallel()
	x := funded(t, 20*money.Unit) // of which Stripe keeps its fee
	x.earn(20 * money.Unit)
	x.payable()
	x.payDue()
	waiting := x.last()
	if waiting.State != Pending || !strings.Contains(waiting.Failure, "waits until money") {
		t.Fatalf("%+v", waiting)
	}
	x.sent("while Stripe holds too little", 0, 0)
	x.topUp(100 * money.Unit)
	x.SendAll(x.p.out)
	if got := x.last(); got.ID != waiting.ID || got.State != Paid || got.Failure != "" {
		t.Fatalf("%+v", got)
	}
	x.sent("in the end", 1, 20*money.Unit)
	x.square()
}

// What Stripe refuses to take back stays on the payout with its reason, both sides are notified, and no money moves; it
// may be requested again, and once the money came back the refusal is no longer shown.
func TestReverse_RefusedByStripe(t *testing.T) {
	t.Parallel()
	x := funded(t, 1000*money.Unit)
	x.Exec("INSERT INTO app_user (id, email, password_hash, admin) VALUES ($1, 'boss@b.c', 'x', true)", x.boss.User)
	home := x.Org()
	x.Exec("INSERT INTO membership (org_id, user_id, role) VALUES ($1, $2, 'owner')", home, x.boss.User)
	x.earn(50 * money.Unit)
	x.payable()
	x.payDue()
	x.fake.Transfers.Reverse(x.fake.Transfers.IDs()[0], 4000) // in Stripe's dashboard, and no event has arrived
	reverse := func(n money.Nano) error {
		return billingtest.Err(x.p.Reverse(x.T.Context(), x.boss, ReversalRequest{
			Payout: x.last().ID,
			Amount: n,
			Reason: "sent twice",
		}, idem.Request{}))
	}
	x.fake.Faults.Fail(sandbox.RateLimited)
	if err := reverse(50 * money.Unit); err != nil {
		t.Fatal(err)
	}
	if r := x.last().Reversal; r == nil || *r != (Reversal{State: ReversalRequested, Amount: 50 * money.Unit}) {
		t.Fatalf("%+v", r)
	}
	if err := reverse(money.Unit); fault.KindOf(err) != fault.Conflict {
		t.Fatal("taken back twice at once", err)
	}
	x.SendAll(x.p.out)
	if r := x.last().Reversal; r == nil || r.State != ReversalRefused || r.Amount != 50*money.Unit || r.Failure == "" {
		t.Fatalf("%+v", r)
	}
	told := func(org id.Org, title string) (n int) {
		t.Helper()
		if err := x.DB.Pool.QueryRow(t.Context(), "SELECT count(*) FROM notice WHERE org_id = $1 AND title = $2 AND body "+
			"LIKE '%' || $3 || '%'", org, title, x.last().Reversal.Failure).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	if told(home, "A payout was not taken back") != 1 ||
		told(x.operator, "50.00 EUR of a payout were not taken back") != 1 {
		t.Fatal("somebody was not told")
	}
	x.square()
	if got := x.last(); got.Reversed != 40*money.Unit || got.Reversal == nil || got.Reversal.State != ReversalRefused {
		t.Fatalf("%+v", got)
	}
	if err := reverse(4 * money.Unit); err != nil {
		t.Fatal(err)
	}
	if got := x.last(); got.Reversed != 44*money.Unit || got.Reversal != nil {
		t.Fatalf("%+v", got)
	}
	x.square()
}

// A refusal is no longer shown once all of the payout came back in another way.
func TestReverse_RefusedAndNoLongerNeeded(t *testing.T) {
	t.Parallel()
	x := funded(t, 1000*money.Unit)
	x.earn(50 * money.Unit)
	x.payable()
	x.payDue()
	tr := x.fake.Transfers.IDs()[0]
	x.fake.Transfers.Reverse(tr, 1)
	if err := billingtest.Err(x.p.Reverse(x.T.Context(), x.boss, ReversalRequest{
		Payout: x.last().ID,
		Amount: 0,
		Reason: "sent twice",
	}, idem.Request{})); err != nil {
		t.Fatal(err)
	}
	x.SendAll(x.p.out)
	if r := x.last().Reversal; r == nil || r.State != ReversalRefused {
		t.Fatalf("%+v", r)
	}
	x.fake.Transfers.Reverse(tr, 4999)
	x.square()
	if got := x.last(); got.Reversed != 50*money.Unit || got.Reversal != nil {
		t.Fatalf("%+v", got)
	}
}

func TestReverse_TakenBack(t *testing.T) {
	t.Parallel()
	x := funded(t, 1000*money.Unit)
	x.earn(50 * money.Unit)
	x.payable()
	x.payDue()
	reverse := func(who account.Principal, n money.Nano, reason string) error {
		return billingtest.Err(x.p.Reverse(x.T.Context(), who, ReversalRequest{
			Payout: x.last().ID,
			Amount: n,
			Reason: reason,
		}, idem.Request{}))
	}
	if err := reverse(x.owner, 0, "mine"); fault.KindOf(err) != fault.Forbidden {
		t.Fatal(err)
	}
	for _, n := range []money.Nano{-1, 1, 51 * money.Unit} {
		if err := reverse(x.boss, n, "wrong"); fault.KindOf(err) != fault.Invalid {
			t.Fatal(n, err)
		}
	}
	if err := reverse(x.boss, money.Unit, " "); fault.KindOf(err) != fault.Invalid {
		t.Fatal(err)
	}
	x.fake.Faults.Fail(sandbox.Error500, sandbox.Error500)
	if err := reverse(x.boss, 20*money.Unit, "sent twice by hand"); err != nil {
		t.Fatal(err)
	}
	x.SendAll(x.p.out)
	x.fake.Faults.Heal()
	x.SendAll(x.p.out)
	if got := x.last(); got.Reversed != 20*money.Unit || got.State != Paid {
		t.Fatalf("%+v", got)
	}
	x.want("it is payable again", 0, 20*money.Unit)
	if x.payDue() != 0 {
		t.Fatal("what was taken back was paid again at once")
	}
	payNow := func(who account.Principal, org id.Org) error {
		return billingtest.Err(x.p.PayNow(x.T.Context(), who, org, "a test", idem.Request{}))
	}
	if err := payNow(x.boss, x.operator); fault.KindOf(err) != fault.Conflict {
		t.Fatal(err)
	}
	// A person takes a part back in Stripe's dashboard, and no event comes: the reconciliation finds out.
	x.fake.Transfers.Reverse(x.fake.Transfers.IDs()[0], 500)
	x.fake.Webhooks.Deliveries()
	x.square()
	if got := x.last(); got.Reversed != 25*money.Unit {
		t.Fatalf("%+v", got)
	}
	if err := x.stop(x.boss, false, "cleared up"); err != nil {
		t.Fatal(err)
	}
	if err := payNow(x.owner, x.operator); fault.KindOf(err) != fault.Forbidden {
		t.Fatal(err)
	}
	if err := payNow(x.boss, x.operator); err != nil {
		t.Fatal(err)
	}
	if got := x.last(); got.Amount != 25*money.Unit || got.State != Paid {
		t.Fatalf("%+v", got)
	}
	if err := payNow(x.boss, id.New[id.Org]()); fault.KindOf(err) != fault.NotFound {
		t.Fatal(err)
	}
	x.sent("in the end", 2, 50*money.Unit)
	x.square()
}

// What was earned from a payment that is disputed is held back, whether it was pending or payable when the dispute
// came.
func TestHeld_Disputes(t *testing.T) {
	t.Parallel()
	x := newAdmin(t)
	top := x.topUp(100 * money.Unit)
	x.topUp(500 * money.Unit)
	x.onboard()
	hold := ledgerHold(x)
	hold(60 * money.Unit)
	x.payable() // before anybody knew
	hold(20 * money.Unit)
	var intent string
	if err := x.DB.Pool.QueryRow(t.Context(), "SELECT payment_intent_id FROM topup WHERE id = $1",
		top.ID).Scan(&intent); err != nil {
		t.Fatal(err)
	}
	dp := x.fake.Disputes.Open(intent, 7000)
	x.Deliver(x.in, x.fake.Webhooks.Deliveries())
	s, err := x.p.Standing(t.Context(), x.operator)
	if err != nil || s.Disputed != 70*money.Unit || s.Pending != 20*money.Unit || s.Payable != 60*money.Unit {
		t.Fatalf("%+v %v", s, err)
	}
	x.payable()
	x.want("nothing pending became payable", 20*money.Unit, 60*money.Unit)
	if x.payDue() != 1 || x.last().Amount != 10*money.Unit {
		t.Fatalf("%+v: of 80 earned, 70 are disputed", x.last())
	}
	x.payDue()
	x.sent("while it is open", 1, 10*money.Unit)
	x.fake.Disputes.Decide(dp, true)
	x.Deliver(x.in, x.fake.Webhooks.Deliveries())
	x.payable()
	if x.payDue() != 1 {
		t.Fatal("not paid")
	}
	x.sent("decided for us", 2, 80*money.Unit)
	x.square()
}

// An account that is not connected any more is paid no more: Stripe's word is final, and nothing is retried for a day.
func TestOnboard_DisconnectedAccount(t *testing.T) {
	t.Parallel()
	x := funded(t, 1000*money.Unit)
	acct := x.fake.Accounts.IDs()[0]
	x.earn(20 * money.Unit)
	x.payable()
	x.fake.Accounts.Deauthorize(acct)
	x.payDue()
	if got := x.last(); got.State != Failed {
		t.Fatalf("%+v", got)
	}
	x.want("payable again", 0, 20*money.Unit)
	gone := func(by string) {
		t.Helper()
		a, err := x.p.Account(t.Context(), x.operator)
		if err != nil || a.State != Disabled || a.Disabled != DisabledDisconnected {
			t.Fatalf("%s: %+v %v", by, a, err)
		}
	}
	gone("the transfer")
	x.Exec("UPDATE payout_account SET disabled = '', ready = true")
	x.Deliver(x.in, x.fake.Webhooks.Deliveries())
	gone("the event")
	if x.payDue() != 0 {
		t.Fatal("paid into an account that is gone")
	}
	x.square()
}

// Money of charges is pending at Stripe for days: a payout is not made from it, nothing is lost, and it is made once
// there is enough.
func TestPayout_PendingFundsNotPaid(t *testing.T) {
	t.Parallel()
	x := newAdmin(t)
	x.fake.Balance.SettleAfter(48 * time.Hour)
	x.topUp(1000 * money.Unit)
	x.onboard()
	x.earn(20 * money.Unit)
	x.payable()
	for range 3 {
		x.payDue()
		x.Exec("UPDATE stripe_outbox SET next_at = clock_timestamp() WHERE state IN ('pending', 'sent', 'unknown')")
		if _, err := x.p.out.SendDue(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	waiting := x.last()
	if waiting.State != Pending || !strings.Contains(waiting.Failure, "waits until money") {
		t.Fatalf("%+v", waiting)
	}
	x.sent("while pending", 0, 0)
	x.fake.Balance.Arrive()
	x.SendAll(x.p.out)
	if got := x.last(); got.ID != waiting.ID || got.State != Paid || got.Failure != "" {
		t.Fatalf("%+v", got)
	}
	x.sent("once it has arrived", 1, 20*money.Unit)
	x.square()
}

// Accounts that cannot be asked about do not keep the others from being asked about.
func TestPollAccounts_DeadAccountsDoNotDelayOthers(t *testing.T) {
	t.Parallel()
	x := newAdmin(t)
	acct := x.onboard()
	for i := range batchRows {
		org := x.Org()
		x.Exec(`INSERT INTO payout_account (org_id, country, stripe_account, next_at, checked_at, created_at)
			VALUES ($1, 'DE', $2, clock_timestamp(), clock_timestamp() - interval '9 days', clock_timestamp() - interval
			'30 days')`, org, fmt.Sprintf("acct_dead%d", i))
	}
	x.fake.Accounts.Onboard(acct, "external_account") // and no event comes
	x.Exec("UPDATE payout_account SET checked_at = clock_timestamp() - interval '8 days' WHERE stripe_account = $1", acct)
	for range 2 {
		_, _ = x.p.PollAccounts(t.Context()) // the dead ones are errors
	}
	a, err := x.p.Account(t.Context(), x.operator)
	if err != nil || a.State != Incomplete {
		t.Fatalf("%+v %v", a, err)
	}
}

// While sending is paused no operator is paid, and the admin page shows why; afterwards all are.
func TestPayout_SendingPaused(t *testing.T) {
	t.Parallel()
	x := funded(t, 500*money.Unit)
	x.earn(100 * money.Unit)
	x.payable()
	x.Exec("INSERT INTO sending_pause (reason) VALUES ('a restore')")
	x.payDue()
	x.sent("while paused", 0, 0)
	who := account.Principal{Admin: true, User: id.New[id.User]()}
	if n, err := x.p.Next(t.Context(), who, x.operator); err != nil || n.Amount != 0 ||
		!strings.Contains(n.Why, "a restore") {
		t.Fatalf("%+v %v", n, err)
	}
	x.Exec("DELETE FROM sending_pause")
	x.payDue()
	x.sent("afterwards", 1, 100*money.Unit)
}
