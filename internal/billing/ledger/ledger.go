// Package ledger keeps the ledger: accounts, and transfers between them that are never changed.
//
// What always holds:
//   - Every transfer takes from one account exactly what it gives to another of the same currency, so Σ debits = Σ
//     credits after every statement, by construction.
//   - History never changes: rows of ledger_tx and ledger_transfer are inserted only (triggers refuse the rest). A
//     mistake is corrected by a compensating entry that names what it corrects.
//   - An entry has transfers, of the same transaction. A trigger moves the balances by them; nothing else does.
//     Accounts and balances are never removed, and an account stays whose it is.
//   - An entry's key names what it books and is booked once: posting it again does nothing.
//   - Nothing takes the balance of an account with a floor (renter wallet, renter hold, host bond, bond hold) below
//     zero, or where it has credit below minus that, whatever commits concurrently. When credit is lowered below what
//     is used of it, the balance stays where it is and only rises.
//   - Account rows are inserted before their balances are locked, and balances are locked in account-id order, after
//     every other lock of the transaction (see package db). A transaction that posts more than once calls Lock with all
//     its accounts first and posts through what it returns, or posts once with PostAll or Prepare, which locks last.
package ledger

import (
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/money"
)

// Transfer moves Amount > 0 from the debit to the credit account: a liability's or income's balance falls by debit and
// rises by credit.
type Transfer struct {
	Debit, Credit Account
	Amount        money.Nano
}

// Entry is one transaction in the ledger: transfers that belong together.
type Entry struct {
	Kind      string // 'topup', 'authorise', 'usage', 'hold_release', 'compensation', …
	Key       string // what it books; the same key books once forever
	Memo      string // for people
	Ref       string // prefixed id of the object it belongs to
	Corrects  id.LedgerTx
	Transfers []Transfer

	id id.LedgerTx // given when it is booked
}
