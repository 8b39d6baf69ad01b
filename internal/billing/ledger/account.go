package ledger

import (
	"github.com/google/uuid"

	"github.com/musterhq/muster/internal/id"
)

// Kind is the purpose of an account.
type Kind string

const (
	KindStripeClearing Kind = "stripe_clearing" // asset: paid to Stripe, for us
	// liability: prepaid and free to spend; below zero it is used or held on credit
	KindRenterWallet Kind = "renter_wallet"
	KindRenterHold   Kind = "renter_hold"       // liability: prepaid, set aside for one cluster
	KindReceivable   Kind = "renter_receivable" // asset: used by orgs that pay afterwards, and not yet paid
	KindHostPending  Kind = "host_pending"      // liability: earned by a host operator, not yet payable
	KindHostPayable  Kind = "host_payable"      // liability: earned by a host operator, and to be paid out
	KindPlatformFee  Kind = "platform_fee"      // income
	KindGoodwill     Kind = "goodwill_credit"   // expense
	KindSuspense     Kind = "suspense"          // what could not be matched yet
	// liability: on its way to an operator, and not yet out of Stripe's balance
	KindTransfers Kind = "transfers_in_flight"
	KindWithheld  Kind = "earnings_withheld" // liability: earnings that a review refused
	KindRefunds   Kind = "refunds_in_flight" // liability: left a wallet, and not yet Stripe
	// liability: set aside while a payment is disputed, less what Stripe has withdrawn
	KindDisputeHold Kind = "dispute_hold"
	// expense: lost disputes that no wallet covered, and invoices that were given up
	KindBadDebt       Kind = "bad_debt"
	KindStripeFees    Kind = "stripe_fees"    // expense: what Stripe keeps of payments and disputes
	KindBank          Kind = "bank"           // asset: what Stripe has paid out to the platform's own account
	KindTaxPayable    Kind = "tax_payable"    // liability: tax charged, and owed to tax offices
	KindPromo         Kind = "promo"          // expense: credit given away by code
	KindHostBond      Kind = "host_bond"      // liability: an operator's money that stands in for their hosts in gangs
	KindBondHold      Kind = "bond_hold"      // liability: the part of a bond that is reserved for one lease
	KindStandbyRelief Kind = "standby_relief" // expense: what the platform adds when no host is to blame for a standstill
	KindBreakage      Kind = "breakage"       // income: what organisations gave up
)

// kinds describes how the accounts of a kind are kept. Hot accounts (the fee) have no balance row: it would make every
// posting of the platform wait on every other; they are summed when asked for.
var kinds = map[Kind]struct{ cached, floored bool }{
	KindStripeClearing: {},
	KindRenterWallet:   {cached: true, floored: true},
	KindRenterHold:     {cached: true, floored: true},
	KindReceivable:     {cached: true},
	KindHostPending:    {cached: true},
	KindHostPayable:    {cached: true, floored: true},
	KindPlatformFee:    {},
	KindGoodwill:       {},
	KindSuspense:       {},
	KindRefunds:        {},
	KindTransfers:      {},
	KindWithheld:       {},
	KindDisputeHold:    {cached: true},
	KindBadDebt:        {},
	KindPromo:          {},
	KindStripeFees:     {},
	KindBank:           {},
	KindTaxPayable:     {},
	KindHostBond:       {cached: true, floored: true},
	KindBondHold:       {cached: true, floored: true},
	KindStandbyRelief:  {},
	KindBreakage:       {},
}

func kindsWhere(keep func(cached, floored bool) bool) []string {
	var out []string
	for k, b := range kinds {
		if keep(b.cached, b.floored) {
			out = append(out, string(k))
		}
	}
	return out
}

// Account names one account. Owner is the org, the cluster for a hold, zero for the platform's own; Org is whose
// money it is, zero for the platform's.
type Account struct {
	Kind     Kind
	Owner    uuid.UUID
	Org      id.Org
	Currency string
}

// Wallet returns an org's prepaid, spendable money. Its balance never falls below zero, or its credit where it has
// some.
func Wallet(org id.Org, currency string) Account {
	return Account{KindRenterWallet, org.UUID(), org, currency}
}

// Hold is money of org set aside for cluster. Its balance never falls below zero, so a cluster can never be charged
// more than was authorised.
func Hold(org id.Org, cluster id.Cluster, currency string) Account {
	return Account{KindRenterHold, cluster.UUID(), org, currency}
}

// Receivable returns what an org that pays afterwards has used and been billed, and has not paid. It is an asset: its
// balance is below zero by that much.
func Receivable(org id.Org, currency string) Account {
	return Account{KindReceivable, org.UUID(), org, currency}
}

// HostPending returns what an operator's hosts earned and may not be paid out yet.
func HostPending(org id.Org, currency string) Account {
	return Account{KindHostPending, org.UUID(), org, currency}
}

// HostPayable returns what an operator's hosts earned and is to be paid out. Its balance never falls below zero.
func HostPayable(org id.Org, currency string) Account {
	return Account{KindHostPayable, org.UUID(), org, currency}
}

// Fee returns the platform's income.
func Fee(currency string) Account { return Account{Kind: KindPlatformFee, Currency: currency} }

// StripeClearing is money that Stripe has taken for us.
func StripeClearing(currency string) Account {
	return Account{Kind: KindStripeClearing, Currency: currency}
}

// Goodwill is credit the platform gives away.
func Goodwill(currency string) Account { return Account{Kind: KindGoodwill, Currency: currency} }

// Suspense holds what came in and could not be matched yet.
func Suspense(currency string) Account { return Account{Kind: KindSuspense, Currency: currency} }

// Refunds returns what has left wallets and not yet Stripe.
func Refunds(currency string) Account { return Account{Kind: KindRefunds, Currency: currency} }

// Transfers returns what has left host_payable and not yet Stripe.
func Transfers(currency string) Account { return Account{Kind: KindTransfers, Currency: currency} }

// Withheld returns what operators' hosts earned and a review refused.
func Withheld(currency string) Account { return Account{Kind: KindWithheld, Currency: currency} }

// DisputeHold returns an org's money set aside while one of its payments is disputed, less what Stripe has withdrawn
// for it.
func DisputeHold(org id.Org, currency string) Account {
	return Account{KindDisputeHold, org.UUID(), org, currency}
}

// BadDebt returns what lost disputes and invoices that were given up have cost the platform, less what was paid after
// all.
func BadDebt(currency string) Account { return Account{Kind: KindBadDebt, Currency: currency} }

// Promo is credit given away by code.
func Promo(currency string) Account { return Account{Kind: KindPromo, Currency: currency} }

// TaxPayable returns tax that payers were charged, less what was given back of it.
func TaxPayable(currency string) Account { return Account{Kind: KindTaxPayable, Currency: currency} }

// StripeFees returns what Stripe keeps.
func StripeFees(currency string) Account { return Account{Kind: KindStripeFees, Currency: currency} }

// Bank returns what Stripe has paid out to the platform's own bank account.
func Bank(currency string) Account { return Account{Kind: KindBank, Currency: currency} }

// HostBond returns an operator's money that is kept to pay other operators when one of their hosts fails in a gang. Its
// balance never falls below zero.
func HostBond(org id.Org, currency string) Account {
	return Account{KindHostBond, org.UUID(), org, currency}
}

// BondHold returns the part of org's bond that is reserved for one lease of one of its hosts. Its balance never falls
// below zero, so a lease never pays more for standby than was reserved for it.
func BondHold(org id.Org, lease id.Lease, currency string) Account {
	return Account{KindBondHold, lease.UUID(), org, currency}
}

// StandbyRelief returns what the platform has paid operators for standstills that no host is to blame for.
func StandbyRelief(currency string) Account {
	return Account{Kind: KindStandbyRelief, Currency: currency}
}

// Breakage returns what organisations gave up when they were deleted.
func Breakage(currency string) Account { return Account{Kind: KindBreakage, Currency: currency} }
