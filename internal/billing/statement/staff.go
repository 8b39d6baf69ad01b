package statement

import (
	"context"
	"fmt"

	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/audit"
	"github.com/musterhq/muster/internal/billing/document"
	"github.com/musterhq/muster/internal/billing/ledger"
	"github.com/musterhq/muster/internal/billing/tax"
	"github.com/musterhq/muster/internal/id"
)

// The platform's own reads, for the API and the pages. Packages ledger, audit and tax know no principals, so the caller
// is checked here; a test in archtest keeps the API and the pages from calling those packages directly.

// TrialBalance returns the trial balance of the whole ledger. Its problems name series of documents whose numbers have
// a gap or are out of order, too. Fault: Forbidden.
func (s *Statements) TrialBalance(ctx context.Context, who account.Principal) (ledger.TrialBalance, error) {
	if err := account.RequireStaff(who); err != nil {
		return ledger.TrialBalance{}, err
	}
	t, err := ledger.Check(ctx, s.d)
	if err != nil {
		return t, err
	}
	series, err := document.CheckAll(ctx, s.d.Q)
	for _, c := range series {
		if c.Problem != "" {
			t.Problems = append(t.Problems, fmt.Sprintf("documents, %s %d: %s", c.Series, c.Year, c.Problem))
		}
	}
	return t, err
}

// Series returns the documents' series, year by year, each with what is wrong with it. Fault: Forbidden.
func (s *Statements) Series(ctx context.Context, who account.Principal) ([]document.Check, error) {
	if err := account.RequireStaff(who); err != nil {
		return nil, err
	}
	return document.CheckAll(ctx, s.d.Q)
}

// SearchLedger is ledger.Search over all organisations. Fault: Forbidden.
func (s *Statements) SearchLedger(ctx context.Context, who account.Principal, text string, before id.LedgerTx,
	limit int) ([]ledger.Booked, error) {
	if err := account.RequireStaff(who); err != nil {
		return nil, err
	}
	return ledger.Search(ctx, s.d.Q, text, before, limit)
}

// SearchAudit is audit.Search over all organisations. Fault: Forbidden.
func (s *Statements) SearchAudit(ctx context.Context, who account.Principal, f audit.Filter, before id.Audit,
	limit int) ([]audit.Found, error) {
	if err := account.RequireStaff(who); err != nil {
		return nil, err
	}
	return audit.Search(ctx, s.d.Q, f, before, limit)
}

// Taxes is tax.ReportOf: what the platform owes for a period. Faults: Forbidden, Invalid.
func (s *Statements) Taxes(ctx context.Context, who account.Principal, period string) (tax.Report, error) {
	if err := account.RequireStaff(who); err != nil {
		return tax.Report{}, err
	}
	return tax.ReportOf(ctx, s.d.Q, s.currency, period)
}
