package client

import (
	"time"

	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/money"
)

// LedgerProposal is an entry between two accounts of the platform that one member of the staff proposed. It is booked
// when another one approves it.
type LedgerProposal struct {
	ID        id.LedgerProposal `json:"id" doc:"of the proposal" example:"lpr_01jd9w6n3qf8vtx2m5k7c4hzrb"`
	Debit     string            `json:"debit" doc:"kind of account" example:"earnings_withheld"`
	Credit    string            `json:"credit" doc:"kind of account that gets the amount" example:"bad_debt"`
	Amount    money.Nano        `json:"amount" doc:"what moves" example:"85.000000000"`
	Currency  string            `json:"currency" example:"EUR"`
	Reason    string            `json:"reason" doc:"why it was proposed" example:"refused in a review"`
	Proposer  string            `json:"proposer" doc:"e-mail address" example:"ada@example.com"`
	CreatedAt time.Time         `json:"created_at" doc:"when it was proposed" example:"2026-11-29T10:00:00Z"`
	State     string            `json:"state" enum:"open,booked,refused" doc:"open: it waits for another admin" example:"open"`
	Decider   string            `json:"decider,omitempty" doc:"e-mail address" example:"bob@example.com"`
	Decision  string            `json:"decision,omitempty" doc:"the reason of who decided" example:"checked with the bank statement"`
	DecidedAt *time.Time        `json:"decided_at,omitempty" doc:"when it was decided" example:"2026-11-29T11:00:00Z"`
}

// NewLedgerProposal is what is proposed.
type NewLedgerProposal struct {
	Debit  string `json:"debit" doc:"kind of account: suspense, earnings_withheld, breakage, bad_debt, goodwill_credit, promo, stripe_fees, standby_relief or bank" example:"earnings_withheld"`
	Credit string `json:"credit" doc:"as debit" example:"bad_debt"`
	Amount string `json:"amount" doc:"a decimal" example:"85.00"`
	Reason string `json:"reason" minLength:"1" maxLength:"500" doc:"the ledger and the audit log keep it"`
}

// LedgerReport is the ledger of a period. An entry belongs to the day (UTC) on which it entered the chain, a minute or
// so after it was booked. Amounts are decimals of any size.
type LedgerReport struct {
	From     string        `json:"from" doc:"first day" example:"2026-11-01"`
	To       string        `json:"to" doc:"last day" example:"2026-11-30"`
	Accounts []KindPeriod  `json:"accounts" doc:"balances by kind of account"`
	Flows    []LedgerFlow  `json:"flows" doc:"what moved, by month and kind"`
	Turnover []KindOfSales `json:"turnover" doc:"what was sold, by kind of entry"`
}

// KindPeriod is all accounts of a kind in a period. A balance is credit minus debit: assets and expenses are below
// zero.
type KindPeriod struct {
	Kind     string `json:"kind" doc:"of account" example:"renter_wallet"`
	Currency string `json:"currency" example:"EUR"`
	Opening  string `json:"opening" doc:"balance before the first day" example:"100.000000000"`
	Debits   string `json:"debits" doc:"what left the accounts" example:"40.000000000"`
	Credits  string `json:"credits" doc:"what the accounts got" example:"25.000000000"`
	Closing  string `json:"closing" doc:"balance at the end of the last day" example:"85.000000000"`
}

// LedgerFlow is what entries of a kind moved between two kinds of accounts in a month.
type LedgerFlow struct {
	Month     string `json:"month" doc:"such as 2026-11, in UTC" example:"2026-11"`
	Kind      string `json:"kind" doc:"of the entries" example:"usage"`
	Debit     string `json:"debit" doc:"kind of account" example:"renter_hold"`
	Credit    string `json:"credit" doc:"kind of account that got it" example:"host_pending"`
	Currency  string `json:"currency" example:"EUR"`
	Transfers int64  `json:"transfers" doc:"how many" example:"1200"`
	Amount    string `json:"amount" doc:"their sum" example:"850.000000000"`
}

// KindOfSales is what was sold by entries of a kind: what renters, other operators' bonds and the platform's relief
// paid is what hosts earned and the platform's fee. What was given back is below zero.
type KindOfSales struct {
	Kind     string `json:"kind" doc:"of the entries, such as usage or storage" example:"usage"`
	Currency string `json:"currency" example:"EUR"`
	Renters  string `json:"renters" doc:"turnover, gross" example:"1000.000000000"`
	Bonds    string `json:"bonds" doc:"paid by bonds of other operators" example:"0.000000000"`
	Relief   string `json:"relief" doc:"paid by the platform" example:"0.000000000"`
	Hosts    string `json:"hosts" doc:"cost of hosts" example:"850.000000000"`
	Fees     string `json:"fees" doc:"what the platform keeps" example:"150.000000000"`
}

// OrgMoney is what an organisation had at the end of a day. Balances are credit minus debit.
type OrgMoney struct {
	Org        id.Org                `json:"org_id" doc:"of the organisation" example:"org_01jd9w6n3qf8vtx2m5k7c4hzrb"`
	Name       string                `json:"name" doc:"of the organisation" example:"Acme"`
	Deferred   money.Nano            `json:"deferred" doc:"paid in and not used: wallet, holds and what disputes set aside" example:"100.000000000"`
	Receivable money.Nano            `json:"receivable" doc:"owed to the platform: used on credit, or earnings that were taken back after they were paid out" example:"0.000000000"`
	Payable    money.Nano            `json:"payable" doc:"owed to it as an operator: earnings and bonds" example:"0.000000000"`
	Accounts   map[string]money.Nano `json:"accounts" doc:"by kind of account" example:"{\"renter_wallet\":\"100.000000000\"}"`
}

// JournalEntry is an entry of the journal.
type JournalEntry struct {
	LedgerEntry
	Day string `json:"day" doc:"the day (UTC) to which it belongs" example:"2026-11-29"`
}

// EntryDecision is the body of ApproveEntry and RefuseEntry.
type EntryDecision struct {
	Reason string `json:"reason" minLength:"1" maxLength:"500" doc:"the audit log keeps it" example:"checked with the bank's statement"`
}

// LedgerDays selects days of the ledger.
type LedgerDays struct {
	From string `query:"from" required:"true" maxLength:"10" doc:"the first day, in UTC" example:"2026-11-01"`
	To   string `query:"to" required:"true" maxLength:"10" doc:"the last day, in UTC" example:"2026-11-30"`
}

// JournalFilter selects entries of the ledger.
type JournalFilter struct {
	LedgerDays
	Kind string `query:"kind" maxLength:"100" doc:"entries of this kind only, such as payout_paid"`
}

// JournalQuery selects a page of entries of the ledger.
type JournalQuery struct {
	PageOf
	JournalFilter
}

// LedgerDay selects a day of the ledger.
type LedgerDay struct {
	At string `query:"at" maxLength:"10" doc:"the day, in UTC, such as 2026-11-30; left out: today"`
}

// OrgMoneyQuery selects a page of the balances of organisations on a day.
type OrgMoneyQuery struct {
	PageOf
	LedgerDay
}

// ProposalsQuery selects proposed entries.
type ProposalsQuery struct {
	PageOf
	Open bool `query:"open" doc:"only those that wait for a decision"`
}
