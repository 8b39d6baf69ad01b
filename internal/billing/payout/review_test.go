package payout

import (
	"slices"
	"testing"
	"time"

	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/billing/ledger"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/idem"
	"github.com/musterhq/muster/internal/money"
	"github.com/musterhq/muster/internal/testing/billingtest"
)

// other makes a renter who has nothing to do with the operator, and earns from them.
func (x *admin) other(n money.Nano) (earn func(money.Nano)) {
	x.T.Helper()
	org := x.Org()
	earn = func(n money.Nano) {
		x.T.Helper()
		x.Move(ledger.StripeClearing(eur), ledger.Wallet(org, eur), n)
		x.Move(ledger.Wallet(org, eur), ledger.HostPending(x.operator, eur), n)
	}
	earn(n)
	return earn
}

// link makes one person a member of the operator's org and of the renter's.
func (x *admin) link() (unlink func()) {
	x.T.Helper()
	u := id.New[id.User]()
	x.Exec("INSERT INTO app_user (id, email, password_hash) VALUES ($1, $2, '')", u, u.String()+"@b.c")
	for _, o := range []id.Org{x.operator, x.renter.Org} {
		x.Exec("INSERT INTO membership (org_id, user_id, role) VALUES ($1, $2, 'owner')", o, u)
	}
	return func() { x.Exec("DELETE FROM membership WHERE user_id = $1", u) }
}

func (x *admin) review() Review {
	x.T.Helper()
	all, err := x.p.Reviews(x.T.Context(), x.boss, id.PayoutReview{}, 10)
	if err != nil || len(all) != 1 {
		x.T.Fatal(all, err)
	}
	return all[0]
}

func (x *admin) release(r id.PayoutReview) error {
	return billingtest.Err(x.p.ApproveReview(x.T.Context(), x.boss, r, "they know each other", idem.Request{}))
}

func (x *admin) refuse(r id.PayoutReview) error {
	return billingtest.Err(x.p.RefuseReview(x.T.Context(), x.boss, r, "a stolen card", idem.Request{}))
}

// stands asserts what is pending, in review, payable and withheld, to the nano-unit.
func (x *admin) stands(what string, pending, inReview, payable, withheld money.Nano) {
	x.T.Helper()
	s, err := x.p.Standing(x.T.Context(), x.operator)
	if err != nil || s.Pending != pending || s.InReview != inReview || s.Payable != payable {
		x.T.Fatalf("%s: %s pending, %s in review, %s payable (%v); want %s, %s and %s", what, s.Pending, s.InReview,
			s.Payable, err, pending, inReview, payable)
	}
	if n, err := ledger.Balance(x.T.Context(), x.DB.Q, ledger.Withheld(eur)); err != nil || n != withheld {
		x.T.Fatalf("%s: %s withheld (%v), want %s", what, n, err, withheld)
	}
	if b, err := ledger.Check(x.T.Context(), x.DB); err != nil || !b.Balanced() {
		x.T.Fatalf("%s: books: %v %v", what, b.Problems, err)
	}
}

func TestReview_LinkedRenter(t *testing.T) {
	t.Parallel()
	x := funded(t, 1000*money.Unit)
	const u = money.Unit
	x.earn(5 * u)
	x.payable()
	x.stands("before there is a link", 0, 0, 5*u, 0)
	unlink := x.link()
	x.earn(30 * u)
	earn := x.other(20 * u)
	x.payable()
	x.stands("the linked renter's waits, the other's and what was payable do not", 0, 30*u, 25*u, 0)
	x.payable()
	x.stands("again", 0, 30*u, 25*u, 0)
	if x.payDue() != 1 {
		t.Fatal("the others' money was not paid")
	}
	x.sent("of the others", 1, 25*u)
	unlink()
	x.earn(3 * u)
	earn(4 * u)
	x.payable()
	x.stands("whoever ends the link stays in review", 0, 33*u, 4*u, 0)
	r := x.review()
	if r.Operator != x.operator || r.Renter != x.renter.Org || !slices.Equal(r.Reasons, []string{"member"}) ||
		r.InReview != 33*u || r.Currency != eur {
		t.Fatalf("%+v", r)
	}

	// for a host's fault, and it is not counted yet
	x.Move(ledger.HostPending(x.operator, eur), ledger.Wallet(x.renter.Org, eur), u)
	if err := x.release(r.ID); err != nil {
		t.Fatal(err)
	}
	if err := x.release(r.ID); fault.KindOf(err) != fault.Conflict {
		t.Fatal("released twice", err)
	}
	if err := x.refuse(r.ID); fault.KindOf(err) != fault.Conflict {
		t.Fatal("refused what was released", err)
	}
	x.stands("released", 32*u, 0, 4*u, 0)
	x.payable()
	x.stands("matured", 0, 0, 36*u, 0)
	if x.payDue() != 1 {
		t.Fatal("what was released was not paid")
	}
	x.sent("released", 2, 61*u)

	x.earn(40 * u)
	earn(11 * u)
	x.payable()
	x.stands("a release is for what was there", 0, 40*u, 11*u, 0)
	if err := x.refuse(r.ID); err != nil {
		t.Fatal(err)
	}
	if err := x.refuse(r.ID); fault.KindOf(err) != fault.Conflict {
		t.Fatal("refused twice", err)
	}
	if err := x.release(r.ID); fault.KindOf(err) != fault.Conflict {
		t.Fatal("released what was refused", err)
	}
	x.payable()
	x.stands("refused", 0, 0, 11*u, 40*u)
	if x.payDue() != 1 {
		t.Fatal("the others' money was not paid")
	}
	x.sent("in the end", 3, 72*u)
	if r := x.review(); r.Released != 32*u || r.Refused != 40*u || r.InReview != 0 || r.Decision != "a stolen card" ||
		r.DecidedAt == nil {
		t.Fatalf("%+v", r)
	}
	var trail, told int
	if err := x.DB.Pool.QueryRow(t.Context(), `SELECT count(*) FILTER (WHERE action LIKE 'payout.review_%' AND object = $1
		AND detail->>'reason' <> ''),
		(SELECT count(*) FROM notice WHERE org_id = $2 AND body = 'a stolen card') FROM
		audit_event`, r.ID.String(), x.operator).Scan(&trail, &told); err != nil || trail != 2 || told != 1 {
		t.Fatal(trail, told, err)
	}
}

// What is in review does not cover what was given back to others.
func TestReview_HeldMoneyCoversNothing(t *testing.T) {
	t.Parallel()
	x := funded(t, 1000*money.Unit)
	const u = money.Unit
	x.link()
	x.earn(30 * u)
	x.other(20 * u)
	x.payable()
	x.giveBack(6 * u)
	x.stands("given back", 0, 30*u, 14*u, 0)
	x.payDue()
	x.sent("less what was given back", 1, 14*u)
}

func TestReview_AdminOnly(t *testing.T) {
	t.Parallel()
	x := newAdmin(t)
	x.topUp(100 * money.Unit)
	x.link()
	x.earn(money.Unit)
	x.payable()
	r := x.review().ID
	for _, c := range []struct {
		who    account.Principal
		review id.PayoutReview
		reason string
		want   fault.Kind
	}{
		{x.owner, r, "mine", fault.Forbidden},
		{x.boss, id.New[id.PayoutReview](), "x", fault.NotFound},
		{x.boss, r, " ", fault.Invalid},
	} {
		for _, err := range []error{
			billingtest.Err(x.p.ApproveReview(t.Context(), c.who, c.review, c.reason, idem.Request{})),
			billingtest.Err(x.p.RefuseReview(t.Context(), c.who, c.review, c.reason, idem.Request{})),
		} {
			if fault.KindOf(err) != c.want {
				t.Errorf("%v, want %v", err, c.want)
			}
		}
	}
	if _, err := x.p.Reviews(t.Context(), x.owner, id.PayoutReview{}, 10); fault.KindOf(err) != fault.Forbidden {
		t.Error(err)
	}
	x.stands("nobody decided", 0, money.Unit, 0, 0)
}

// Each way in which two orgs look like one is found, and what only looks alike is not.
func TestReview_Links(t *testing.T) {
	t.Parallel()
	legal := func(x *admin, o id.Org, name, line, country, vat string) {
		x.Exec("INSERT INTO org_legal (org_id, name, address, country, vat_id) VALUES ($1, $2, $3, $4, $5)", o, name,
			[]string{line, "10115 Berlin"}, country, vat)
	}
	for name, c := range map[string]struct {
		link func(x *admin)
		want []string
	}{
		"a person in both": {func(x *admin) { x.link() }, []string{"member"}},
		"the same VAT id": {func(x *admin) {
			legal(x, x.operator, "A", "A 1", "DE", "DE123456789")
			legal(x, x.renter.Org, "B", "B 2", "DE", "DE123456789")
		}, []string{"vat_id"}},
		"the same name and address": {func(x *admin) {
			legal(x, x.operator, "Rack GmbH", "Ring 1", "DE", "")
			legal(x, x.renter.Org, "RACK GmbH.", "Ring  1,", "DE", "")
		}, []string{"legal_name"}},
		"the same name elsewhere": {func(x *admin) {
			legal(x, x.operator, "Rack GmbH", "Ring 1", "DE", "")
			legal(x, x.renter.Org, "Rack GmbH", "Ring 2", "DE", "")
		}, nil},
		"the same card": {func(x *admin) {
			for _, o := range []id.Org{x.operator, x.renter.Org} {
				x.Exec("INSERT INTO payment_card (id, org_id, method_id, brand, last4, exp_month, exp_year, fingerprint) VALUES "+
					"($1, $2, $3, 'visa', '4242', 1, 2030, 'fp')",
					id.New[id.Card](), o, "pm_of_"+o.String())
			}
		}, []string{"card"}},
		"cards nobody knows the number of": {func(x *admin) {
			for _, o := range []id.Org{x.operator, x.renter.Org} {
				x.Exec("INSERT INTO payment_card (id, org_id, method_id, brand, last4, exp_month, exp_year) VALUES ($1, $2, $3, "+
					"'visa', '4242', 1, 2030)",
					id.New[id.Card](), o, "pm_of_"+o.String())
			}
		}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			x := newAdmin(t)
			x.Move(ledger.StripeClearing(eur), ledger.Wallet(x.renter.Org, eur), money.Unit)
			c.link(x)
			x.earn(money.Unit)
			x.payable()
			if c.want == nil {
				x.stands("not linked", 0, 0, money.Unit, 0)
				return
			}
			x.stands("linked", 0, money.Unit, 0, 0)
			if r := x.review(); !slices.Equal(r.Reasons, c.want) {
				t.Fatal(r.Reasons)
			}
		})
	}
}

// A link that is only found when part of a renter's money has become payable holds the rest, and what is young is not
// in review yet.
func TestReview_OnlyNotYetPayable(t *testing.T) {
	t.Parallel()
	x := newAdmin(t)
	x.topUp(100 * money.Unit)
	x.earn(7)
	x.payable()
	x.earn(5)
	x.link()
	between := x.Now()
	x.earn(3)
	x.mature(between.Add(-time.Hour))
	x.stands("all of it is young", 8, 0, 7, 0)
	x.mature(between)
	x.stands("the first is old", 3, 5, 7, 0)
	x.mature(x.Now())
	x.stands("all is old", 0, 8, 7, 0)
}

// The process that matures, releases or refuses is killed at each statement in turn: nothing has changed then, and the
// next one does it all.
func TestReview_KilledAtAnyStatement(t *testing.T) {
	t.Parallel()
	x := newAdmin(t)
	x.topUp(1000 * money.Unit)
	x.link()
	earn := x.other(5)
	x.earn(7)
	state := func() (s [6]money.Nano) {
		t.Helper()
		for i, a := range []ledger.Account{ledger.HostPending(x.operator, eur), ledger.HostPayable(x.operator, eur),
			ledger.Withheld(eur)} {
			n, err := ledger.Balance(t.Context(), x.DB.Q, a)
			if err != nil {
				t.Fatal(err)
			}
			s[i] = n
		}
		if err := x.DB.Pool.QueryRow(t.Context(), "SELECT coalesce(sum(held), 0)::bigint, coalesce(sum(released), "+
			"0)::bigint, coalesce(sum(refused), 0)::bigint FROM payout_review").Scan(&s[3], &s[4], &s[5]); err != nil {
			t.Fatal(err)
		}
		return s
	}
	killed := func(what string, do func() error, want [6]money.Nano) {
		t.Helper()
		before := state()
		for n := int64(1); ; n++ {
			if n > 200 {
				t.Fatalf("%s takes more than 200 statements", what)
			}
			x.k.Left.Store(n)
			err := do()
			if x.k.Left.Swap(0) > 0 {
				if err != nil || n < 6 {
					t.Fatalf("%s: %v after %d statements: the killer does not kill", what, err, n)
				}
				break
			}
			if got := state(); err == nil && got == want {
				break // it died after the commit
			} else if got != before {
				t.Fatalf("%s, killed at statement %d: %v, was %v", what, n, got, before)
			}
		}
		if got := state(); got != want {
			t.Fatalf("%s: %v, want %v", what, got, want)
		}
	}
	mature := func() error { _, err := Mature(t.Context(), x.DB, 0); return err }
	killed("setting aside", mature, [6]money.Nano{7, 5, 0, 7, 0, 0})
	r := x.review().ID
	killed("a release", func() error { return x.release(r) }, [6]money.Nano{7, 5, 0, 0, 7, 0})
	killed("maturing", mature, [6]money.Nano{0, 12, 0, 0, 7, 0})
	x.earn(11)
	earn(2)
	killed("setting aside again", mature, [6]money.Nano{11, 14, 0, 11, 7, 0})
	killed("a refusal", func() error { return x.refuse(r) }, [6]money.Nano{0, 14, 11, 0, 7, 11})
	x.payable()
	x.stands("in the end", 0, 0, 14, 11)
}
