// Package statement returns what people see of their money: balances, statements, earnings. It only reads.
package statement

import (
	"context"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/billing/ledger"
	"github.com/musterhq/muster/internal/billing/metering"
	"github.com/musterhq/muster/internal/billing/owed"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/money"
)

// Balance is what a renter has and what it is being spent on.
type Balance = client.Balance

// OrgBalance reads the org's balance.
func (s *Statements) OrgBalance(ctx context.Context, org id.Org) (Balance, error) {
	books, err := ledger.OrgBalances(ctx, s.d.Q, org, s.currency)
	if err != nil {
		return Balance{}, err
	}
	running, err := metering.OrgRunning(ctx, s.d.Q, org)
	if err != nil {
		return Balance{}, err
	}
	b := balance(books, running, s.currency)
	storage, err := owed.Read(ctx, s.d.Q, org)
	if b.StorageOwed = storage.Amount; storage.Since != nil {
		since := storage.Since.UTC()
		b.StorageOwedSince = &since
	}
	return b, err
}

func balance(books ledger.Balances, running metering.Running, currency string) Balance {
	b := Balance{
		Available:   max(0, books.Available+books.Credit-books.Reserved),
		Credit:      books.Credit,
		Owed:        books.Owed,
		Held:        books.Held,
		Accrued:     min(running.Accrued, books.Held),
		BurnPerHour: running.Burn,
		Currency:    currency,
	}
	if b.BurnPerHour > 0 {
		s := money.MillisOf(b.Available+b.Held-b.Accrued, b.BurnPerHour) / 1000
		b.RunwaySeconds = &s
	}
	return b
}

// Transaction is one entry of an org's books.
type Transaction = client.Transaction

// Transactions returns the org's entries in one currency, newest first, those older than before (zero: from the
// newest).
func (s *Statements) Transactions(ctx context.Context, org id.Org, before id.LedgerTx,
	limit int) ([]Transaction, error) {
	lines, err := ledger.History(ctx, s.d.Q, org, s.currency, before, limit)
	if err != nil {
		return nil, err
	}
	out := make([]Transaction, len(lines))
	for i, l := range lines {
		out[i] = Transaction{
			ID:             l.Tx,
			At:             l.At,
			Kind:           l.Kind,
			Memo:           l.Memo,
			Ref:            l.Ref,
			Amount:         l.Change.Available + l.Change.Held + l.Change.Earned + l.Change.Bond - l.Change.Owed,
			Available:      l.Change.Available,
			Held:           l.Change.Held,
			Earned:         l.Change.Earned,
			Owed:           l.Change.Owed,
			Bond:           l.Change.Bond,
			AvailableAfter: l.After.Available,
			HeldAfter:      l.After.Held,
			EarnedAfter:    l.After.Earned,
			OwedAfter:      l.After.Owed,
			BondAfter:      l.After.Bond,
		}
		if l.Kind == "usage" && l.Change.Earned > 0 && l.Change.Held == 0 {
			out[i].Kind = "earning" // the same entry, seen from the host's side
		}
	}
	return out, nil
}
