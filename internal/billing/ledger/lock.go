package ledger

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/money"
)

// Locked are accounts of one transaction whose balances no other transaction can change before it ends.
type Locked struct {
	tx *db.Tx
	by map[accountKey]*held
}

// held is one account, its balance locked if it has one.
type held struct {
	id            id.LedgerAccount
	cached        bool
	amount, delta money.Nano
	credit        money.Nano // how far below zero it may fall, if it has a floor
	reserved      money.Nano // of amount, cannot be taken out
	floor         *int64
}

// Lock makes the accounts exist and locks their balances until tx ends: in the order of account ids, wallets last.
// Accounts without a balance row (the fee, clearing) are made and not locked.
func Lock(ctx context.Context, tx *db.Tx, accounts ...Account) (*Locked, error) {
	want := make(map[accountKey]Account, len(accounts))
	for _, a := range accounts {
		if _, ok := kinds[a.Kind]; !ok {
			return nil, fmt.Errorf("no account kind %q", a.Kind)
		}
		want[a.key()] = a
	}
	l := &Locked{tx, make(map[accountKey]*held, len(want))}
	if err := l.find(ctx, want); err != nil {
		return nil, err
	}
	return l, l.lock(ctx, want)
}

// QueueLock queues what Lock does, for accounts that all have a balance. The batch is sent in tx; what is locked can be
// used after it.
func QueueLock(b *pgx.Batch, tx *db.Tx, accounts ...Account) (*Locked, error) {
	want := make(map[accountKey]Account, len(accounts))
	for _, a := range accounts {
		if !kinds[a.Kind].cached {
			return nil, fmt.Errorf("accounts of kind %q have no balance to lock", a.Kind)
		}
		want[a.key()] = a
	}
	l := &Locked{tx, make(map[accountKey]*held, len(want))}
	queueCreate(b, want, nil)
	n := namesOf(want)
	db.Queue(b, func(ctx context.Context, q *dbq.Queries) error {
		rows, err := q.LockLedgerBalances(ctx, n.kinds, n.owners, n.currencies)
		if err != nil {
			return fmt.Errorf("lock balances: %w", err)
		}
		for _, r := range rows {
			l.by[accountKey{Kind(r.Kind), r.Owner.Bytes, r.Currency}] = &held{id: r.AccountID, cached: true}
		}
		return l.fill(rows, want)
	})
	return l, nil
}

// Has reports whether an account is among the locked ones.
func (l *Locked) Has(a Account) bool { return l.by[a.key()] != nil }

// Balance returns an account's amount, what was posted through l included; 0 for one without a balance row. It must be
// among the locked ones.
func (l *Locked) Balance(a Account) money.Nano { return l.by[a.key()].amount }

// Spendable returns what can be taken out of a locked account: its balance and its credit, less what is reserved.
func (l *Locked) Spendable(a Account) money.Nano {
	h := l.by[a.key()]
	return max(0, h.amount+h.credit-h.reserved)
}

// Reserved returns what of a locked account's balance cannot be taken out. It may be more than the balance: then
// whatever is credited cannot be taken out either, until the balance exceeds it.
func (l *Locked) Reserved(a Account) money.Nano { return l.by[a.key()].reserved }

// Reserve sets what of a locked account with a floor cannot be taken out from now on, 0 or more.
func (l *Locked) Reserve(ctx context.Context, a Account, reserved money.Nano) error {
	h := l.by[a.key()]
	if reserved < 0 {
		return fmt.Errorf("reserve %s", reserved)
	}
	if h.reserved == reserved {
		return nil
	}
	n, err := l.tx.Q.SetLedgerReserved(ctx, reserved, h.id)
	if err != nil {
		return fmt.Errorf("set reserve of %s: %w", h.id, err)
	}
	if n != 1 {
		return fmt.Errorf("%s has no floor", h.id)
	}
	h.reserved = reserved
	return nil
}

// SetCredit sets how far below zero a locked account with a floor may fall from now on. One that is below that already
// stays there and only rises.
func (l *Locked) SetCredit(ctx context.Context, a Account, credit money.Nano) error {
	h := l.by[a.key()]
	if credit < 0 {
		return fmt.Errorf("credit of %s", credit)
	}
	if h.credit == credit {
		return nil
	}
	n, err := l.tx.Q.SetLedgerCredit(ctx, credit, h.id)
	if err != nil {
		return fmt.Errorf("set credit of %s: %w", h.id, err)
	}
	if n != 1 {
		return fmt.Errorf("%s has no floor", h.id)
	}
	h.credit = credit
	return nil
}

// Post returns the package's Post between locked accounts.
func (l *Locked) Post(ctx context.Context, e Entry) (booked bool, err error) {
	if err := l.check(e); err != nil {
		return false, err
	}
	entries, did := []Entry{e}, []bool{false}
	if err := insertTxs(ctx, l.tx, entries, did); err != nil {
		return false, err
	}
	return did[0], l.book(ctx, entries, did)
}

// QueueWrite queues the writes that book e, whose key no other transaction can have used, between locked accounts. If
// the key is in the ledger already, the batch fails.
func (l *Locked) QueueWrite(b *pgx.Batch, e Entry) error {
	if err := l.check(e); err != nil {
		return err
	}
	e.id = id.New[id.LedgerTx]()
	db.Write(b, (*dbq.Queries).InsertLedgerTx, dbq.InsertLedgerTxParams{
		ID:   e.id,
		Kind: e.Kind,
		Key:  e.Key,
		Memo: e.Memo,
		Ref:  e.Ref,
	})
	p, err := l.move([]Entry{e}, []bool{true})
	if err == nil {
		db.Write(b, (*dbq.Queries).InsertLedgerTransfers, p)
	}
	return err
}

// Retire marks that the object of a locked account has ended: while nothing is in the account, sums of what its org has
// leave it out. With something in it this does nothing; money that moves into it later brings it back.
func (l *Locked) Retire(ctx context.Context, a Account) error {
	if l.by[a.key()].amount != 0 {
		return nil
	}
	owner := pgtype.UUID{Bytes: a.Owner, Valid: true}
	if err := l.tx.Q.RetireLedgerAccount(ctx, string(a.Kind), owner, a.Currency); err != nil {
		return fmt.Errorf("retire %s: %w", l.by[a.key()].id, err)
	}
	return nil
}

func (l *Locked) check(e Entry) error {
	if err := e.check(); err != nil {
		return err
	}
	for _, t := range e.Transfers {
		if l.by[t.Debit.key()] == nil || l.by[t.Credit.key()] == nil {
			return fmt.Errorf("entry %q moves an account that is not locked", e.Key)
		}
	}
	return nil
}

func (h *held) add(n money.Nano) error {
	d := h.delta + n
	sum := h.amount + d
	if (n > 0) != (d > h.delta) || (d > 0) != (sum > h.amount) && d != 0 {
		return fmt.Errorf("balance of %s out of range", h.id)
	}
	h.delta = d
	return nil
}

// names are accounts as query parameters.
type names struct {
	kinds, currencies []string
	owners            []pgtype.UUID
}

func namesOf(want map[accountKey]Account) (n names) {
	for k := range want {
		n.kinds = append(n.kinds, string(k.kind))
		n.owners = append(n.owners, pgtype.UUID{Bytes: k.owner, Valid: true})
		n.currencies = append(n.currencies, k.currency)
	}
	return n
}

// find fills l with those of the wanted accounts that exist. It locks nothing: a transaction that locks some accounts
// and then creates others could deadlock.
func (l *Locked) find(ctx context.Context, want map[accountKey]Account) error {
	n := namesOf(want)
	rows, err := l.tx.Q.FindLedgerAccounts(ctx, n.kinds, n.owners, n.currencies)
	if err != nil {
		return fmt.Errorf("find accounts: %w", err)
	}
	return l.take(rows)
}

func (l *Locked) take(rows []dbq.FindLedgerAccountsRow) error {
	for _, r := range rows {
		kind := Kind(r.Kind)
		if kinds[kind].cached && !r.HasBalance {
			return fmt.Errorf("account %s of kind %q has no balance", r.ID, kind)
		}
		l.by[accountKey{kind, r.Owner.Bytes, r.Currency}] = &held{id: r.ID, cached: kinds[kind].cached}
	}
	return nil
}

// lock makes the accounts that l lacks, waiting for a concurrent transaction that makes the same ones, and locks all
// balances, in one round trip.
func (l *Locked) lock(ctx context.Context, want map[accountKey]Account) error {
	b := &pgx.Batch{}
	n := namesOf(want)
	if len(l.by) < len(want) {
		queueCreate(b, want, l.by)
		db.Queue(b, func(ctx context.Context, q *dbq.Queries) error {
			rows, err := q.FindLedgerAccounts(ctx, n.kinds, n.owners, n.currencies)
			if err != nil {
				return err
			}
			return l.take(rows)
		})
	}
	db.Queue(b, func(ctx context.Context, q *dbq.Queries) error {
		balances, err := q.LockLedgerBalances(ctx, n.kinds, n.owners, n.currencies)
		if err != nil {
			return err
		}
		return l.fill(balances, want)
	})
	if err := l.tx.Send(ctx, b); err != nil {
		return fmt.Errorf("lock balances: %w", err)
	}
	return nil
}

// fill puts the locked balances in, and checks that none is missing.
func (l *Locked) fill(balances []dbq.LockLedgerBalancesRow, want map[accountKey]Account) error {
	if len(l.by) != len(want) {
		return fmt.Errorf("%d of %d accounts exist", len(l.by), len(want))
	}
	byID := make(map[id.LedgerAccount]*held, len(l.by))
	for _, h := range l.by {
		if h.cached {
			byID[h.id] = h
		}
	}
	if len(balances) != len(byID) {
		return fmt.Errorf("%d of %d balances exist", len(balances), len(byID))
	}
	for _, b := range balances {
		h := byID[b.AccountID]
		h.amount, h.credit, h.reserved, h.floor = b.Amount, b.Credit, b.Reserved, b.Floor
	}
	return nil
}

// queueCreate queues the writes that insert the accounts that are missing in have, and their balances.
func queueCreate(b *pgx.Batch, want map[accountKey]Account, have map[accountKey]*held) {
	var missing []Account
	for k, a := range want {
		if have[k] == nil {
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
	db.Write(b, (*dbq.Queries).InsertLedgerAccounts, p)
	db.Queue(b, func(ctx context.Context, q *dbq.Queries) error {
		return q.InsertLedgerBalances(ctx, flooredKinds, p.Ids, cachedKinds)
	})
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
