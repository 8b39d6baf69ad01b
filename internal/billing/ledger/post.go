package ledger

import (
	"context"
	"fmt"

	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
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
	l, err := Lock(ctx, tx, accounts...)
	if err != nil {
		return nil, err
	}
	if err := insertTxs(ctx, tx, entries, booked); err != nil {
		return nil, err
	}
	return booked, l.book(ctx, entries, booked)
}

func (e Entry) check() error {
	if e.Kind == "" || e.Key == "" || len(e.Transfers) == 0 {
		return fmt.Errorf("entry %q has no kind, key or transfers", e.Key)
	}
	for _, t := range e.Transfers {
		switch {
		case t.Amount <= 0:
			return fmt.Errorf("entry %q moves %d; amounts are positive", e.Key, int64(t.Amount))
		case t.Debit.Currency != t.Credit.Currency || t.Debit.Currency == "":
			return fmt.Errorf("entry %q moves %q to %q", e.Key, t.Debit.Currency, t.Credit.Currency)
		case t.Debit.key() == t.Credit.key():
			return fmt.Errorf("entry %q moves from an account to itself", e.Key)
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
		return fmt.Errorf("insert entries: %w", err)
	}
	for _, f := range fresh {
		booked[at[f]] = true
	}
	return nil
}

// book writes the transfers of the entries that are new. A trigger of PostgreSQL moves the balances.
func (l *Locked) book(ctx context.Context, entries []Entry, booked []bool) error {
	p, err := l.move(entries, booked)
	if err != nil || len(p.Ids) == 0 {
		return err
	}
	if err := l.tx.Q.InsertLedgerTransfers(ctx, p); err != nil {
		return fmt.Errorf("insert transfers: %w", err)
	}
	return nil
}

// move makes the transfers of the entries that are new, and checks that the locked balances can move by them.
func (l *Locked) move(entries []Entry, booked []bool) (p dbq.InsertLedgerTransfersParams, err error) {
	var fresh []Entry
	for i, e := range entries {
		if booked[i] {
			fresh = append(fresh, e)
		}
	}
	if p, err = l.transfers(fresh); err != nil {
		return p, err
	}
	return p, l.settle()
}

// transfers makes the entries' transfers and adds them to what the accounts are to move by.
func (l *Locked) transfers(entries []Entry) (p dbq.InsertLedgerTransfersParams, err error) {
	for _, e := range entries {
		for _, t := range e.Transfers {
			from, to := l.by[t.Debit.key()], l.by[t.Credit.key()]
			if err := from.add(-t.Amount); err != nil {
				return p, err
			}
			if err := to.add(t.Amount); err != nil {
				return p, err
			}
			p.Ids = append(p.Ids, raw(id.New[id.LedgerTransfer]()))
			p.Txs = append(p.Txs, raw(e.id))
			p.Debits = append(p.Debits, raw(from.id))
			p.Credits = append(p.Credits, raw(to.id))
			p.Currencies = append(p.Currencies, t.Debit.Currency)
			p.Amounts = append(p.Amounts, int64(t.Amount))
		}
	}
	return p, nil
}

// settle checks the floors, and counts what the accounts move by.
func (l *Locked) settle() error {
	for _, h := range l.by {
		if !h.cached || h.delta == 0 {
			continue
		}
		if short := -(h.amount + h.delta + h.credit - h.reserved); h.floor != nil && h.delta < 0 && short > 0 {
			return fault.New(fault.InsufficientFunds, "not enough credit: %s more is needed", min(short, -h.delta))
		}
		h.amount, h.delta = h.amount+h.delta, 0
	}
	return nil
}
