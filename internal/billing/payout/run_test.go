package payout

import (
	"strings"
	"testing"

	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/idem"
	"github.com/musterhq/muster/internal/money"
	"github.com/musterhq/muster/internal/testing/billingtest"
)

func (x *admin) run() Next {
	x.T.Helper()
	all, err := x.p.Upcoming(x.T.Context(), x.boss)
	if err != nil || len(all) != 1 || all[0].Org != x.operator {
		x.T.Fatalf("%+v %v", all, err)
	}
	return all[0]
}

// The overview shows in advance what a run pays, to the cent, or why it pays nothing.
func TestUpcoming_MatchesTheRun(t *testing.T) {
	t.Parallel()
	x := newAdmin(t)
	x.topUp(1000 * money.Unit)
	if all, err := x.p.Upcoming(t.Context(), x.boss); err != nil || len(all) != 0 {
		t.Fatal(all, err)
	}
	x.earn(25*money.Unit + 7)
	x.payable()
	if n := x.run(); n.Payable != 25*money.Unit+7 || n.Amount != 0 || !strings.Contains(n.Why, "no payout account") ||
		n.NextAt != nil {
		t.Fatalf("%+v", n)
	}
	x.onboard()
	if n := x.run(); n.Amount != 25*money.Unit || n.Why != "" || n.NextAt == nil || n.OrgName != "o" {
		t.Fatalf("%+v", n)
	}
	x.fake.Accounts.Onboard(x.fake.Accounts.IDs()[0], "individual.verification.document") // and the event has not come yet
	runs := func(want ...State) {
		t.Helper()
		made, _, err := x.p.PayAll(t.Context(), x.boss, "asked for", idem.Request{})
		if err != nil || len(made) != len(want) {
			t.Fatal(made, err)
		}
		for i, m := range made {
			if got, err := x.p.Get(t.Context(), x.operator, m.ID); err != nil || got.State != want[i] {
				t.Fatal(got, err)
			}
		}
	}
	runs(Failed)
	if n := x.run(); n.Failures != 1 || n.Failure == "" || n.Amount != 25*money.Unit {
		t.Fatalf("%+v", n)
	}
	x.fake.Accounts.Onboard(x.fake.Accounts.IDs()[0])
	x.Deliver(x.in, x.fake.Webhooks.Deliveries())
	runs(Paid)
	if n := x.run(); n.Failures != 0 || n.Failure != "" || n.Amount != 0 || n.Payable != 7 ||
		!strings.Contains(n.Why, "the minimum is") {
		t.Fatalf("%+v", n)
	}
	runs()
	x.earn(30 * money.Unit)
	x.payable()
	if err := x.stop(x.boss, true, "a stolen card"); err != nil {
		t.Fatal(err)
	}
	if n := x.run(); n.Amount != 0 || !strings.Contains(n.Why, "a stolen card") || n.Account.Stopped == "" {
		t.Fatalf("%+v", n)
	}
	runs()
	x.sent("in the end", 1, 25*money.Unit)
	if err := billingtest.Err(x.p.PayAll(t.Context(), x.boss, " ", idem.Request{})); fault.KindOf(err) != fault.Invalid {
		t.Error(err)
	}
	for _, err := range []error{second(x.p.Upcoming(t.Context(), x.owner)),
		billingtest.Err(x.p.PayAll(t.Context(), x.owner, "mine", idem.Request{})),
		second(x.p.ReviewsOf(t.Context(), x.owner, ReviewFilter{}, id.PayoutReview{}, 1))} {
		if fault.KindOf(err) != fault.Forbidden {
			t.Error(err)
		}
	}
	var trail int
	if err := x.DB.Pool.QueryRow(t.Context(), "SELECT count(*) FROM audit_event WHERE action = 'payout.now' AND "+
		"detail->>'reason' = 'asked for'").Scan(&trail); err != nil || trail != 2 {
		t.Error(trail, err)
	}
}

// The overview takes as many statements for fifty operators as for one.
func TestUpcoming_ConstantNumberOfStatements(t *testing.T) {
	t.Parallel()
	x := newAdmin(t)
	x.topUp(1000 * money.Unit)
	x.onboard()
	x.earn(25 * money.Unit)
	x.payable()
	statements := func(operators int) int64 {
		t.Helper()
		before := x.k.Left.Load()
		all, err := x.p.Upcoming(t.Context(), x.boss)
		if err != nil {
			t.Fatal(err)
		}
		if len(all) != operators {
			t.Fatalf("%d operators listed, want %d", len(all), operators)
		}
		return before - x.k.Left.Load()
	}
	one := statements(1)
	for range 49 {
		org := x.Org()
		x.Exec("INSERT INTO payout_account (org_id, user_id, country, next_at, failures) "+
			"VALUES ($1, $2, 'DE', clock_timestamp(), 1)", org, id.New[id.User]())
	}
	if fifty := statements(50); fifty != one {
		t.Errorf("%d statements for 50 operators, %d for one", fifty, one)
	}
}

func second[T any](_ T, err error) error { return err }
