package ledger_test

import (
	"context"
	"testing"

	"github.com/musterhq/muster/internal/billing/ledger"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/money"
	"github.com/musterhq/muster/internal/testing/billingtest"
	"github.com/musterhq/muster/internal/testing/dbtest"
)

// An entry between accounts of the platform needs two people and two reasons, and moves no more than there is. The
// database holds to it, too.
func TestProposal_TwoPeople(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t)
	w := billingtest.New(t, d)
	ada, bob := w.Admin().User, w.Admin().User
	w.Move(ledger.StripeClearing(eur), ledger.Withheld(eur), 85*money.Unit)
	propose := func(debit, credit ledger.Kind, n money.Nano) (p ledger.Proposal, err error) {
		err = d.InTx(t.Context(), func(ctx context.Context, tx *db.Tx) (err error) {
			p, err = ledger.Propose(ctx, tx, ada, ledger.Draft{Debit: debit, Credit: credit, Currency: eur, Amount: n,
				Reason: "refused a year ago"})
			return err
		})
		return p, err
	}
	decide := func(who id.User, p ledger.Proposal, approve bool, reason string) (out ledger.Proposal, err error) {
		err = d.InTx(t.Context(), func(ctx context.Context, tx *db.Tx) (err error) {
			out, err = ledger.Decide(ctx, tx, who, p.ID, approve, reason)
			return err
		})
		return out, err
	}
	for _, bad := range []struct {
		debit, credit ledger.Kind
		n             money.Nano
	}{{ledger.KindWithheld, ledger.KindWithheld, 1}, {ledger.KindWithheld, ledger.KindRenterWallet, 1},
		{ledger.KindStripeClearing, ledger.KindBank, 1}, {ledger.KindPlatformFee, ledger.KindBank, 1},
		{ledger.KindWithheld, ledger.KindBadDebt, 0}} {
		if _, err := propose(bad.debit, bad.credit, bad.n); !fault.Is(err, fault.Invalid) {
			t.Errorf("%v: %v", bad, err)
		}
	}
	must := func(p ledger.Proposal, err error) ledger.Proposal {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	all := must(propose(ledger.KindWithheld, ledger.KindBadDebt, 85*money.Unit))
	more := must(propose(ledger.KindWithheld, ledger.KindBreakage, 1))
	back := must(propose(ledger.KindBadDebt, ledger.KindWithheld, 1))
	if _, err := decide(ada, all, true, "mine"); !fault.Is(err, fault.Forbidden) {
		t.Errorf("approved by who proposed it: %v", err)
	}
	if _, err := decide(bob, all, true, " "); !fault.Is(err, fault.Invalid) {
		t.Errorf("approved without a reason: %v", err)
	}
	if got := must(decide(bob, all, true, "seen")); got.State != ledger.ProposalBooked || got.Decision != "seen" ||
		got.Proposer == got.Decider || got.DecidedAt == nil {
		t.Errorf("%+v", got)
	}
	if w.Balance(ledger.Withheld(eur)) != 0 || w.Balance(ledger.BadDebt(eur)) != 85*money.Unit {
		t.Error("the money did not move")
	}
	for _, p := range []ledger.Proposal{all, more, back} { // again, more than there is, and away from zero
		if _, err := decide(bob, p, true, "again"); !fault.Is(err, fault.Conflict) {
			t.Errorf("%s to %s: %v", p.Debit, p.Credit, err)
		}
	}
	if got := must(decide(ada, more, false, "withdrawn")); got.State != ledger.ProposalRefused {
		t.Errorf("%+v", got)
	}
	open, err := ledger.Proposals(t.Context(), d.Q, true, id.LedgerProposal{}, 10)
	if err != nil || len(open) != 1 || open[0].ID != back.ID {
		t.Error(open, err)
	}
	for what, sql := range map[string]string{
		"approved by who proposed it": "UPDATE ledger_proposal SET state = 'booked', decided_by = proposed_by, decision = " +
			"'x', decided_at = now() WHERE state = 'open'",
		"a changed amount":  "UPDATE ledger_proposal SET amount = 2 WHERE state = 'open'",
		"decided again":     "UPDATE ledger_proposal SET decision = 'x' WHERE state = 'booked'",
		"removed":           "DELETE FROM ledger_proposal",
		"a decision undone": "UPDATE ledger_proposal SET state = 'open' WHERE state = 'refused'",
	} {
		if _, err := d.Pool.Exec(t.Context(), sql); err == nil {
			t.Errorf("%s was accepted", what)
		}
	}
	if err := w.Post("admin_entry", ledger.Transfer{Debit: ledger.Bank(eur), Credit: ledger.Breakage(eur),
		Amount: 1}); err == nil {
		t.Error("an entry that was not proposed was booked")
	}
	w.MustBalance()
}
