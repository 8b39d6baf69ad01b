package payment

import (
	"context"
	"fmt"

	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/audit"
	"github.com/musterhq/muster/internal/billing/ledger"
	"github.com/musterhq/muster/internal/billing/tax"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/idem"
)

// Remit books that a tax office was paid from the platform's own bank account: tax_payable falls, and so does bank.
// Only an admin may, with a reason for the audit log. It returns the report of the period as it is then. Faults:
// Forbidden, Invalid (more than is owed to that country for that period), Conflict (the period is not over).
func (taxes *Taxes) Remit(ctx context.Context, who account.Principal, m tax.Remittance,
	once idem.Request) (tax.Report, idem.Outcome, error) {
	if err := account.RequireStaff(who); err != nil {
		return tax.Report{}, idem.Outcome{}, err
	}
	return idem.Once(ctx, taxes.d, once, func(ctx context.Context, tx *db.Tx) (tax.Report, error) {
		n, err := tax.Remit(ctx, tx, who.User, taxes.cfg.Currency, m)
		if err != nil {
			return tax.Report{}, err
		}
		e := ledger.Entry{
			Kind: "tax_remitted",
			Key:  fmt.Sprintf("tax_remitted:%d", n),
			Memo: m.Country + ", " + m.Period,
			Transfers: []ledger.Transfer{{
				Debit:  ledger.TaxPayable(taxes.cfg.Currency),
				Credit: ledger.Bank(taxes.cfg.Currency),
				Amount: m.Amount,
			}},
		}
		if booked, err := ledger.Post(ctx, tx, e); err != nil || !booked {
			return tax.Report{}, fmt.Errorf("%s (booked: %t): %w", e.Key, booked, err)
		}
		if err := audit.Record(ctx, tx, who.Event("billing.tax_remit", m.Country, map[string]any{
			"country": m.Country, "period": m.Period, "amount": m.Amount.String(), "reason": m.Reason})); err != nil {
			return tax.Report{}, err
		}
		return tax.ReportOf(ctx, tx.Q, taxes.cfg.Currency, m.Period)
	})
}
