package payment

import (
	"context"
	"fmt"
	"strings"

	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/audit"
	"github.com/musterhq/muster/internal/billing/ledger"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/idem"
	"github.com/musterhq/muster/internal/money"
	"github.com/musterhq/muster/internal/notify"
)

// Corrections are entries of the ledger that admins decide.
type Corrections struct{ *core }

// Compensate gives a charge, or a part of it (amount; zero: all that is left of it), back to its renter, notifies both
// sides of the reason, and records it in the audit log. Only an admin may.
func (c *Corrections) Compensate(ctx context.Context, who account.Principal, charge id.LedgerTx, amount money.Nano,
	reason string,
	once idem.Request) (ledger.Entry, idem.Outcome, error) {
	if err := account.RequireStaff(who); err != nil {
		return ledger.Entry{}, idem.Outcome{}, err
	}
	return idem.Once(ctx, c.d, once, func(ctx context.Context, tx *db.Tx) (ledger.Entry, error) {
		if reason = strings.TrimSpace(reason); reason == "" || len(reason) > 500 {
			return ledger.Entry{}, fault.InvalidField("reason", "must give the reason in at most 500 bytes; both sides "+
				"read it")
		}
		e, err := ledger.Compensate(ctx, tx, charge, amount, reason)
		if err != nil {
			return e, err
		}
		var back money.Nano
		for _, t := range e.Transfers {
			back += t.Amount
		}
		for _, t := range e.Transfers {
			for org, title := range map[id.Org]string{
				t.Credit.Org: "A charge was given back to you",
				t.Debit.Org:  "A charge you earned from was given back",
			} {
				if org.IsZero() {
					continue
				}
				if _, err := notify.Add(ctx, tx, notify.Notice{
					Org:      org,
					Key:      e.Key,
					Severity: notify.Info,
					Object:   e.Ref,
					Title:    title,
					Body: fmt.Sprintf("%s %s of a charge for usage went back to the renter: %s", back.Plain(), t.Credit.Currency,
						reason),
				}); err != nil {
					return e, err
				}
			}
		}
		return e, audit.Record(ctx, tx, who.Event("ledger.compensate", charge.String(), map[string]any{
			"amount": back.String(),
			"reason": reason,
		}))
	})
}
