package bond

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/musterhq/muster/internal/billing/ledger"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/money"
)

// Account returns the account of an organisation's bond, as a list for ledger.Lock; empty if it never had a bond: no
// account is made for it.
func Account(ctx context.Context, q *dbq.Queries, org id.Org, currency string) ([]ledger.Account, error) {
	has, err := q.HasBond(ctx, pgtype.UUID{Bytes: org.UUID(), Valid: true}, currency)
	if err != nil {
		return nil, fmt.Errorf("find the bond of %s: %w", org, err)
	}
	if !has {
		return nil, nil
	}
	return []ledger.Account{ledger.HostBond(org, currency)}, nil
}

// Held returns what is reserved of an organisation's bond for leases.
func Held(ctx context.Context, q *dbq.Queries, org id.Org, currency string) (money.Nano, error) {
	n, err := q.BondHeld(ctx, org, currency)
	if err != nil {
		return 0, fmt.Errorf("read bond reserved by %s: %w", org, err)
	}
	return money.Nano(n), nil
}

// Take counts an amount that leaves a bond, whose account is locked, and returns how much of it came out of the wallet:
// that leaves first, as in a withdrawal.
func Take(ctx context.Context, tx *db.Tx, org id.Org, currency string, amount money.Nano) (money.Nano, error) {
	in, err := Deposited(ctx, tx.Q, org, currency)
	if err != nil {
		return 0, err
	}
	if in = min(in, amount); in == 0 {
		return 0, nil
	}
	if err := tx.Q.TakeBondDeposited(ctx, in, org, currency); err != nil {
		return 0, fmt.Errorf("take from the bond of %s: %w", org, err)
	}
	return in, nil
}

// Answer makes good from an operator's bond what was given back or refused beyond its pending and payable earnings, as
// far as the bond is not reserved. The accounts of earnings are locked, and that of the bond if there is one.
func Answer(ctx context.Context, tx *db.Tx, books *ledger.Locked, org id.Org, currency string) error {
	bond, payable := ledger.HostBond(org, currency), ledger.HostPayable(org, currency)
	if !books.Has(bond) {
		return nil
	}
	missing := -books.Balance(ledger.HostPending(org, currency)) - books.Balance(payable)
	part := min(missing, books.Spendable(bond))
	if part <= 0 {
		return nil
	}
	if _, err := Take(ctx, tx, org, currency, part); err != nil {
		return err
	}
	_, err := books.Post(ctx, ledger.Entry{
		Kind:      "bond_withdraw",
		Key:       "bond_withdraw:" + id.New[id.LedgerTx]().String(),
		Ref:       org.String(),
		Memo:      "out of the bond, for what was taken back of your earnings",
		Transfers: []ledger.Transfer{{Debit: bond, Credit: payable, Amount: part}},
	})
	return err
}
