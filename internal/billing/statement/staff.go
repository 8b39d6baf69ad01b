package statement

import (
	"context"
	"fmt"

	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/audit"
	"github.com/musterhq/muster/internal/billing/document"
	"github.com/musterhq/muster/internal/billing/ledger"
	"github.com/musterhq/muster/internal/billing/tax"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/id"
)

// The platform's own reads, for the API and the pages. Packages ledger, audit and tax know no principals, so whoever
// asks is checked here; a test in archtest keeps the API and the pages from calling those packages past it.

// TrialBalance is the trial balance of the whole ledger. Its problems name series of documents whose numbers have a gap
// or are out of order, too. Fault: Forbidden.
func TrialBalance(ctx context.Context, who account.Principal, d *db.DB) (ledger.TrialBalance, error) {
	if err := account.RequireStaff(who); err != nil {
		return ledger.TrialBalance{}, err
	}
	t, err := ledger.Check(ctx, d)
	if err != nil {
		return t, err
	}
	series, err := document.CheckAll(ctx, d.Q)
	for _, c := range series {
		if c.Problem != "" {
			t.Problems = append(t.Problems, fmt.Sprintf("documents, %s %d: %s", c.Series, c.Year, c.Problem))
		}
	}
	return t, err
}

// Series are the documents' series, year by year, each with what is wrong with it. Fault: Forbidden.
func Series(ctx context.Context, who account.Principal, q *dbq.Queries) ([]document.Check, error) {
	if err := account.RequireStaff(who); err != nil {
		return nil, err
	}
	return document.CheckAll(ctx, q)
}

// SearchLedger is ledger.Search over all organisations. Fault: Forbidden.
func SearchLedger(ctx context.Context, who account.Principal, q *dbq.Queries, text string, before id.LedgerTx,
	limit int) ([]ledger.Booked, error) {
	if err := account.RequireStaff(who); err != nil {
		return nil, err
	}
	return ledger.Search(ctx, q, text, before, limit)
}

// SearchAudit is audit.Search over all organisations. Fault: Forbidden.
func SearchAudit(ctx context.Context, who account.Principal, q *dbq.Queries, f audit.Filter, before id.Audit,
	limit int) ([]audit.Found, error) {
	if err := account.RequireStaff(who); err != nil {
		return nil, err
	}
	return audit.Search(ctx, q, f, before, limit)
}

// Taxes is tax.ReportOf: what the platform owes for a period. Faults: Forbidden, Invalid.
func Taxes(ctx context.Context, who account.Principal, q *dbq.Queries, currency, period string) (tax.Report, error) {
	if err := account.RequireStaff(who); err != nil {
		return tax.Report{}, err
	}
	return tax.ReportOf(ctx, q, currency, period)
}
