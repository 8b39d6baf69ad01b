package statement

import (
	"context"
	"io"
	"time"

	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/billing/ledger"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
)

// LedgerReport is ledger.ReportOf. Fault: Forbidden.
func (s *Statements) LedgerReport(ctx context.Context, who account.Principal, d ledger.Days) (r ledger.Report,
	err error) {
	if err := account.RequireStaff(who); err != nil {
		return r, err
	}
	err = s.d.InSnapshot(ctx, func(ctx context.Context, q *dbq.Queries) (err error) {
		r, err = ledger.ReportOf(ctx, q, d)
		return err
	})
	return r, err
}

// Journal is ledger.Journal. Fault: Forbidden.
func (s *Statements) Journal(ctx context.Context, who account.Principal, d ledger.Days, kind string,
	behind ledger.Place, limit int) ([]ledger.Placed, error) {
	if err := account.RequireStaff(who); err != nil {
		return nil, err
	}
	return ledger.Journal(ctx, s.d.Q, d, kind, behind, limit)
}

// JournalCSV is ledger.JournalCSV. Fault: Forbidden.
func (s *Statements) JournalCSV(ctx context.Context, who account.Principal, w io.Writer, d ledger.Days,
	kind string) error {
	if err := account.RequireStaff(who); err != nil {
		return err
	}
	return ledger.JournalCSV(ctx, w, s.d.Q, d, kind)
}

// OrgMoney is ledger.OrgsAt in the platform's currency. Fault: Forbidden.
func (s *Statements) OrgMoney(ctx context.Context, who account.Principal, day time.Time, behind id.Org,
	limit int) ([]ledger.OrgMoney, error) {
	if err := account.RequireStaff(who); err != nil {
		return nil, err
	}
	return ledger.OrgsAt(ctx, s.d.Q, s.currency, day, behind, limit)
}

// OrgMoneyCSV is ledger.OrgsCSV in the platform's currency. Fault: Forbidden.
func (s *Statements) OrgMoneyCSV(ctx context.Context, who account.Principal, w io.Writer, day time.Time) error {
	if err := account.RequireStaff(who); err != nil {
		return err
	}
	return ledger.OrgsCSV(ctx, w, s.d.Q, s.currency, day)
}

// LedgerDay reads a day such as 2026-11-30; "" is today by PostgreSQL's clock. Fault: Invalid.
func (s *Statements) LedgerDay(ctx context.Context, text string) (time.Time, error) {
	if text == "" {
		now, err := s.d.Q.DatabaseTime(ctx)
		return now.UTC().Truncate(24 * time.Hour), err
	}
	day, err := time.Parse(time.DateOnly, text)
	if err != nil {
		return day, fault.InvalidField("at", "must be a day, such as 2026-11-30")
	}
	return day, nil
}

// Proposals is ledger.Proposals. Fault: Forbidden.
func (s *Statements) Proposals(ctx context.Context, who account.Principal, open bool, before id.LedgerProposal,
	limit int) ([]ledger.Proposal, error) {
	if err := account.RequireStaff(who); err != nil {
		return nil, err
	}
	return ledger.Proposals(ctx, s.d.Q, open, before, limit)
}
