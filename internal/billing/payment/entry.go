package payment

import (
	"context"
	"fmt"

	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/audit"
	"github.com/musterhq/muster/internal/billing/ledger"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/idem"
	"github.com/musterhq/muster/internal/notify"
)

// Propose proposes an entry between two accounts of the platform, which another admin has to approve. Admins are
// notified, and the audit log keeps it. Faults: Forbidden, Invalid.
func (c *Corrections) Propose(ctx context.Context, who account.Principal, d ledger.Draft,
	once idem.Request) (ledger.Proposal, idem.Outcome, error) {
	if err := account.RequireStaff(who); err != nil {
		return ledger.Proposal{}, idem.Outcome{}, err
	}
	d.Currency = c.cfg.Currency
	return idem.Once(ctx, c.d, once, func(ctx context.Context, tx *db.Tx) (ledger.Proposal, error) {
		x, err := ledger.Propose(ctx, tx, who.User, d)
		if err != nil {
			return x, err
		}
		if err := audit.Record(ctx, tx, who.Event("ledger.propose", x.ID.String(), entryFacts(x, x.Reason))); err != nil {
			return x, err
		}
		return x, notify.AddForAdmins(ctx, tx, notify.Notice{
			Key:      "proposal:" + x.ID.String(),
			Severity: notify.Info,
			Object:   x.ID.String(),
			Title:    "An entry of the ledger waits for approval",
			Body: fmt.Sprintf("%s proposes to move %s %s from %s to %s: %s Another admin has to approve it, on the page "+
				"Proposed entries or with muster admin entry approve.", x.Proposer, x.Amount.Plain(), x.Currency, x.Debit, x.Credit,
				x.Reason),
		})
	})
}

// Decide books a proposed entry, or refuses it, with a reason for the audit log. An admin cannot approve
// an entry of their own. Faults: Forbidden, NotFound, Invalid (the reason), Conflict.
func (c *Corrections) Decide(ctx context.Context, who account.Principal, proposal id.LedgerProposal, approve bool,
	reason string, once idem.Request) (ledger.Proposal, idem.Outcome, error) {
	if err := account.RequireStaff(who); err != nil {
		return ledger.Proposal{}, idem.Outcome{}, err
	}
	return idem.Once(ctx, c.d, once, func(ctx context.Context, tx *db.Tx) (ledger.Proposal, error) {
		x, err := ledger.Decide(ctx, tx, who.User, proposal, approve, reason)
		if err != nil {
			return x, err
		}
		facts := entryFacts(x, x.Decision)
		e := who.Event("ledger.refuse_entry", x.ID.String(), facts)
		if approve {
			e = who.Event("ledger.approve_entry", x.ID.String(), facts)
		}
		return x, audit.Record(ctx, tx, e)
	})
}

func entryFacts(x ledger.Proposal, reason string) map[string]any {
	return map[string]any{"debit": x.Debit, "credit": x.Credit, "amount": x.Amount.String(), "reason": reason}
}
