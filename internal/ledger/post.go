package ledger

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/money"
)

// Post books e in tx. A key that was booked before, or that a concurrent transaction commits first, leaves everything
// as it is: booked is false. A balance that would fall below its account's floor is fault.InsufficientFunds; the
// caller must then roll back.
func Post(ctx context.Context, tx *db.Tx, e Entry) (booked bool, err error) {
	b, err := PostAll(ctx, tx, []Entry{e})
	return err == nil && b[0], err
}

// PostAll is Post for many entries at the cost of few statements. Floors are checked after all of them.
func PostAll(ctx context.Context, tx *db.Tx, entries []Entry) (booked []bool, err error) {
	booked = make([]bool, len(entries))
	if len(entries) == 0 {
		return booked, nil
	}
	for _, e := range entries {
		if err := e.check(); err != nil {
			return nil, err
		}
	}
	var accounts []Account
	for _, e := range entries {
		for _, t := range e.Transfers {
			accounts = append(accounts, t.Debit, t.Credit)
		}
	}
	locked, err := lock(ctx, tx, accounts)
	if err != nil {
		return nil, err
	}
	if err := insertTxs(ctx, tx, entries, booked); err != nil {
		return nil, err
	}
	return booked, book(ctx, tx, entries, booked, locked)
}

func (e Entry) check() error {
	if e.Kind == "" || e.Key == "" || len(e.Transfers) == 0 {
		return fmt.Errorf("ledger: entry %q has no kind, key or transfers", e.Key)
	}
	for _, t := range e.Transfers {
		switch {
		case t.Amount <= 0:
			return fmt.Errorf("ledger: entry %q moves %d; amounts are positive", e.Key, int64(t.Amount))
		case t.Debit.Currency != t.Credit.Currency || t.Debit.Currency == "":
			return fmt.Errorf("ledger: entry %q moves %q to %q", e.Key, t.Debit.Currency, t.Credit.Currency)
		case t.Debit.key() == t.Credit.key():
			return fmt.Errorf("ledger: entry %q moves from an account to itself", e.Key)
		}
	}
	return nil
}

func insertTxs(ctx context.Context, tx *db.Tx, entries []Entry, booked []bool) error {
	var p dbq.InsertLedgerTxsParams
	at := make(map[id.LedgerTx]int, len(entries))
	for i := range entries {
		entries[i].id = id.New[id.LedgerTx]()
		e := &entries[i]
		at[e.id] = i
		p.Ids = append(p.Ids, raw(e.id))
		p.Kinds = append(p.Kinds, e.Kind)
		p.Keys = append(p.Keys, e.Key)
		p.Memos = append(p.Memos, e.Memo)
		p.Refs = append(p.Refs, e.Ref)
		p.Corrects = append(p.Corrects, raw(e.Corrects))
	}
	fresh, err := tx.Q.InsertLedgerTxs(ctx, p)
	if err != nil {
		return fmt.Errorf("ledger: insert entries: %w", err)
	}
	for _, f := range fresh {
		booked[at[f]] = true
	}
	return nil
}

// book writes the transfers of the entries that are new and moves the balances.
func book(ctx context.Context, tx *db.Tx, entries []Entry, booked []bool, locked map[accountKey]*held) error {
	var p dbq.InsertLedgerTransfersParams
	for i, e := range entries {
		if !booked[i] {
			continue
		}
		for _, t := range e.Transfers {
			from, to := locked[t.Debit.key()], locked[t.Credit.key()]
			if err := from.add(-t.Amount); err != nil {
				return err
			}
			if err := to.add(t.Amount); err != nil {
				return err
			}
			p.Ids = append(p.Ids, raw(id.New[id.LedgerTransfer]()))
			p.Txs = append(p.Txs, raw(e.id))
			p.Debits = append(p.Debits, raw(from.id))
			p.Credits = append(p.Credits, raw(to.id))
			p.Currencies = append(p.Currencies, t.Debit.Currency)
			p.Amounts = append(p.Amounts, int64(t.Amount))
		}
	}
	var ids []pgtype.UUID
	var deltas []int64
	for _, h := range locked {
		if !h.cached || h.delta == 0 {
			continue
		}
		if h.floor != nil && int64(h.amount+h.delta) < *h.floor {
			return fault.New(fault.InsufficientFunds, "not enough credit: %s more is needed", -(h.amount + h.delta))
		}
		ids = append(ids, raw(h.id))
		deltas = append(deltas, int64(h.delta))
	}
	if len(p.Ids) == 0 {
		return nil
	}
	if err := tx.Q.InsertLedgerTransfers(ctx, p); err != nil {
		return fmt.Errorf("ledger: insert transfers: %w", err)
	}
	if len(ids) == 0 {
		return nil
	}
	if err := tx.Q.AddLedgerBalances(ctx, ids, deltas); err != nil {
		return fmt.Errorf("ledger: move balances: %w", err)
	}
	return nil
}

// Lock makes the accounts exist and locks their balances in account-id order until tx ends. Accounts without a
// balance row (the fee, clearing) are made and not locked. It returns the balances in the order of the arguments;
// 0 for those without a row.
func Lock(ctx context.Context, tx *db.Tx, accounts ...Account) ([]money.Nano, error) {
	locked, err := lock(ctx, tx, accounts)
	if err != nil {
		return nil, err
	}
	out := make([]money.Nano, len(accounts))
	for i, a := range accounts {
		out[i] = locked[a.key()].amount
	}
	return out, nil
}

// held is an account of this transaction, its balance locked if it has one.
type held struct {
	id            id.LedgerAccount
	cached        bool
	amount, delta money.Nano
	floor         *int64
}

func (h *held) add(n money.Nano) error {
	d := h.delta + n
	sum := h.amount + d
	if (n > 0) != (d > h.delta) || (d > 0) != (sum > h.amount) && d != 0 {
		return fmt.Errorf("ledger: balance of %s out of range", h.id)
	}
	h.delta = d
	return nil
}

func lock(ctx context.Context, tx *db.Tx, accounts []Account) (map[accountKey]*held, error) {
	want := make(map[accountKey]Account, len(accounts))
	for _, a := range accounts {
		if _, ok := books[a.Kind]; !ok {
			return nil, fmt.Errorf("ledger: no account kind %q", a.Kind)
		}
		want[a.key()] = a
	}
	out := make(map[accountKey]*held, len(want))
	if err := find(ctx, tx.Q, want, out); err != nil {
		return nil, err
	}
	if len(out) < len(want) {
		if err := create(ctx, tx, want, out); err != nil {
			return nil, err
		}
	}
	byID := make(map[id.LedgerAccount]*held, len(out))
	var ids []pgtype.UUID
	for k, h := range out {
		if h.cached = books[k.kind].cached; h.cached {
			byID[h.id] = h
			ids = append(ids, raw(h.id))
		}
	}
	if len(ids) == 0 {
		return out, nil
	}
	rows, err := tx.Q.LockLedgerBalances(ctx, ids)
	if err != nil {
		return nil, fmt.Errorf("ledger: lock balances: %w", err)
	}
	if len(rows) != len(ids) {
		return nil, fmt.Errorf("ledger: %d of %d balances exist", len(rows), len(ids))
	}
	for _, r := range rows {
		h := byID[r.AccountID]
		h.amount, h.floor = r.Amount, r.Floor
	}
	return out, nil
}

// find fills out with those of the wanted accounts that exist.
func find(ctx context.Context, q *dbq.Queries, want map[accountKey]Account, out map[accountKey]*held) error {
	var kinds, currencies []string
	var owners []pgtype.UUID
	for k := range want {
		kinds = append(kinds, string(k.kind))
		owners = append(owners, pgtype.UUID{Bytes: k.owner, Valid: true})
		currencies = append(currencies, k.currency)
	}
	rows, err := q.FindLedgerAccounts(ctx, kinds, owners, currencies)
	if err != nil {
		return fmt.Errorf("ledger: find accounts: %w", err)
	}
	for _, r := range rows {
		out[accountKey{Kind(r.Kind), r.Owner.Bytes, r.Currency}] = &held{id: r.ID}
	}
	return nil
}

// create inserts the accounts that out lacks, and waits for a concurrent transaction that inserts the same ones.
func create(ctx context.Context, tx *db.Tx, want map[accountKey]Account, out map[accountKey]*held) error {
	var missing []Account
	for k, a := range want {
		if out[k] == nil {
			missing = append(missing, a)
		}
	}
	slices.SortFunc(missing, func(a, b Account) int { // one order everywhere: no deadlock between creators
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), bytes.Compare(a.Owner[:], b.Owner[:]), cmp.Compare(a.Currency, b.Currency))
	})
	var p dbq.InsertLedgerAccountsParams
	for _, a := range missing {
		p.Ids = append(p.Ids, raw(id.New[id.LedgerAccount]()))
		p.Kinds = append(p.Kinds, string(a.Kind))
		p.Owners = append(p.Owners, pgtype.UUID{Bytes: a.Owner, Valid: true})
		p.Orgs = append(p.Orgs, raw(a.Org))
		p.Currencies = append(p.Currencies, a.Currency)
	}
	if err := tx.Q.InsertLedgerAccounts(ctx, p); err != nil {
		return fmt.Errorf("ledger: insert accounts: %w", err)
	}
	if err := find(ctx, tx.Q, want, out); err != nil {
		return err
	}
	var ids []pgtype.UUID
	for _, a := range missing {
		h := out[a.key()]
		if h == nil {
			return fmt.Errorf("ledger: account %s of %s was not made", a.Kind, a.Owner)
		}
		ids = append(ids, raw(h.id))
	}
	floored := kindsWhere(func(_, floored bool) bool { return floored })
	cached := kindsWhere(func(cached, _ bool) bool { return cached })
	if err := tx.Q.InsertLedgerBalances(ctx, floored, ids, cached); err != nil {
		return fmt.Errorf("ledger: insert balances: %w", err)
	}
	return nil
}

// accountKey is what makes an account one.
type accountKey struct {
	kind     Kind
	owner    [16]byte
	currency string
}

func (a Account) key() accountKey { return accountKey{a.Kind, a.Owner, a.Currency} }

// raw is an id for a uuid[] parameter, in which the zero id stays a value.
func raw[T interface{ UUIDValue() (pgtype.UUID, error) }](v T) pgtype.UUID {
	u, _ := v.UUIDValue() // never fails
	u.Valid = true
	return u
}
