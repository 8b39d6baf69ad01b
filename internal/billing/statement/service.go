package statement

import (
	"context"

	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/billing/billproof"
	"github.com/musterhq/muster/internal/billing/ledger"
	"github.com/musterhq/muster/internal/billing/metering"
	"github.com/musterhq/muster/internal/db"
)

// Statements are the reads of money, for the API, the pages and the command line. Safe for concurrent use.
type Statements struct {
	d        *db.DB
	currency string // ISO 4217, upper case
	merchant Party  // of record, on invoices
}

// New returns the reads on d.
func New(d *db.DB, currency string, merchant Party) *Statements {
	if merchant.Address == nil {
		merchant.Address = []string{} // a list in JSON, never null
	}
	return &Statements{d, currency, merchant}
}

// LedgerHead returns the newest batch of the chained ledger, which anyone may note and compare later.
func (s *Statements) LedgerHead(ctx context.Context) (*billproof.Batch, error) {
	return ledger.Head(ctx, s.d.Q)
}

// BelowZero returns the accounts of customers whose balance is below zero, at most limit. Only an admin sees them.
// Fault: Forbidden.
func (s *Statements) BelowZero(ctx context.Context, who account.Principal, limit int) ([]ledger.Overdrawn, error) {
	if err := account.RequireStaff(who); err != nil {
		return nil, err
	}
	return ledger.BelowZero(ctx, s.d.Q, limit)
}

// Running returns what all leases that run cost per hour and have cost since they were last booked. Only an admin sees
// it. Fault: Forbidden.
func (s *Statements) Running(ctx context.Context, who account.Principal) (metering.Running, error) {
	if err := account.RequireStaff(who); err != nil {
		return metering.Running{}, err
	}
	return metering.AllRunning(ctx, s.d.Q)
}
