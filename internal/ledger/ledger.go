// Package ledger keeps the books: accounts, and transfers between them that are never changed.
//
// What always holds:
//   - Every transfer takes from one account exactly what it gives to another of the same currency, so Σ debits =
//     Σ credits after every statement, by construction.
//   - History never changes: rows of ledger_tx and ledger_transfer are inserted only (triggers refuse the rest). A
//     mistake is mended by a compensating entry that names what it corrects.
//   - An entry's key says what it books and is booked once: posting it again does nothing.
//   - The balance of an account with a floor (renter wallet, renter hold: 0) never falls below it, whatever commits
//     concurrently.
//   - Account rows are inserted before their balances are locked, and balances are locked in account-id order, after
//     every other lock of the transaction (see package db).
package ledger

import (
	"context"
	"time"

	"github.com/google/uuid"

	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/money"
)

// Kind says what an account is for.
type Kind string

const (
	KindStripeClearing Kind = "stripe_clearing" // asset: paid to Stripe, for us
	KindRenterWallet   Kind = "renter_wallet"   // liability: prepaid and free to spend
	KindRenterHold     Kind = "renter_hold"     // liability: prepaid, set aside for one cluster
	KindHostPending    Kind = "host_pending"    // liability: earned by a host operator, not yet payable
	KindPlatformFee    Kind = "platform_fee"    // income
	KindGoodwill       Kind = "goodwill_credit" // expense
	KindSuspense       Kind = "suspense"        // what could not be matched yet
)

// Account names one account. Owner is the org, the cluster for a hold, zero for the platform's own; Org is whose
// money it is, zero for the platform's.
type Account struct {
	Kind     Kind
	Owner    uuid.UUID
	Org      id.Org
	Currency string
}

// Wallet is an org's prepaid, spendable money. Its balance never falls below zero.
func Wallet(org id.Org, currency string) Account {
	return Account{KindRenterWallet, org.UUID(), org, currency}
}

// Hold is money of org set aside for cluster. Its balance never falls below zero, so a cluster can never be charged
// more than was authorised.
func Hold(org id.Org, cluster id.Cluster, currency string) Account {
	return Account{KindRenterHold, cluster.UUID(), org, currency}
}

// HostPending is what an operator's hosts earned and may not be paid out yet.
func HostPending(org id.Org, currency string) Account {
	return Account{KindHostPending, org.UUID(), org, currency}
}

// Fee is the platform's income.
func Fee(currency string) Account { return Account{Kind: KindPlatformFee, Currency: currency} }

// StripeClearing is money that Stripe has taken for us.
func StripeClearing(currency string) Account {
	return Account{Kind: KindStripeClearing, Currency: currency}
}

// Goodwill is credit the platform gives away.
func Goodwill(currency string) Account { return Account{Kind: KindGoodwill, Currency: currency} }

// Transfer moves Amount > 0 from the debit to the credit account: a liability's or income's balance falls by debit and
// rises by credit.
type Transfer struct {
	Debit, Credit Account
	Amount        money.Nano
}

// Entry is one transaction in the books: transfers that belong together.
type Entry struct {
	Kind      string // 'topup', 'authorise', 'usage', 'hold_release', 'compensation', …
	Key       string // what it books; the same key books once for ever
	Memo      string // for people
	Ref       string // prefixed id of the object it belongs to
	Corrects  id.LedgerTx
	Transfers []Transfer
}

// Post books e in tx. A key that was booked before, or that a concurrent transaction commits first, leaves everything
// as it is: booked is false. A balance that would fall below its account's floor is fault.InsufficientFunds, and
// nothing is booked.
func Post(ctx context.Context, tx *db.Tx, e Entry) (booked bool, err error) {
	return false, fault.New(fault.Unavailable, "not built yet")
}

// PostAll is Post for many entries at the cost of few statements.
func PostAll(ctx context.Context, tx *db.Tx, entries []Entry) (booked []bool, err error) {
	return nil, fault.New(fault.Unavailable, "not built yet")
}

// Lock makes the accounts exist and locks their balances in account-id order until tx ends. Accounts without a
// balance row (the fee, clearing) are made and not locked. It returns the balances in the order of the arguments;
// 0 for those without a row.
func Lock(ctx context.Context, tx *db.Tx, accounts ...Account) ([]money.Nano, error) {
	return nil, fault.New(fault.Unavailable, "not built yet")
}

// Balance is the account's balance, credit minus debit; 0 for an account that was never used.
func Balance(ctx context.Context, q *dbq.Queries, a Account) (money.Nano, error) {
	return 0, fault.New(fault.Unavailable, "not built yet")
}

// Line is one entry as the org it concerns sees it.
type Line struct {
	Tx        id.LedgerTx
	At        time.Time
	Kind      string
	Memo, Ref string
	// Changes of the org's accounts, and what they were right after.
	Available, Held, Earned                money.Nano
	AvailableAfter, HeldAfter, EarnedAfter money.Nano
}

// History is the org's entries, newest first, those older than before (zero: from the newest), at most limit.
func History(ctx context.Context, q *dbq.Queries, org id.Org, before id.LedgerTx, limit int) ([]Line, error) {
	return nil, fault.New(fault.Unavailable, "not built yet")
}
