package client

import (
	"time"

	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/money"
)

// PayoutBalance is what the organisation's hosts earned, by how far it is from being paid.
type PayoutBalance struct {
	Pending money.Nano `json:"pending" doc:"earned and booked, and in the holdback"`
	// measured, in none of the others: leases that run are booked every quarter of an hour
	NotYet   money.Nano `json:"not_booked" doc:"measured, in none of the others: leases that run are booked every quarter of an hour"`
	InReview money.Nano `json:"in_review" doc:"earned before it, from renters who are linked with you: waits until the platform has decided"`
	Payable  money.Nano `json:"payable" doc:"earned before it, and not paid out yet"`
	Disputed money.Nano `json:"disputed" doc:"of both, from payments that are disputed now: waits until they are decided"`
	Sending  money.Nano `json:"sending" doc:"on its way to you"`
	Paid     money.Nano `json:"paid" doc:"sent to you, less what was taken back"`
	Minimum  money.Nano `json:"minimum" doc:"less than this is not paid out"`
	NextAt   *time.Time `json:"next_at" doc:"of the next payout; null while you have no payout account"`
	Holdback int64      `json:"holdback_seconds"`
	Frozen   []id.Lease `json:"frozen_lease_ids" doc:"leases with two accounts of the same time; until they are looked at, nothing becomes payable"`
	Currency string     `json:"currency"`
}

// Payout is a payment to the organisation.
type Payout struct {
	ID       id.Payout  `json:"id"`
	Amount   money.Nano `json:"amount"`
	Currency string     `json:"currency"`

	State     PayoutState     `json:"state"`
	Reversed  money.Nano      `json:"reversed"`           // of Amount, taken back
	Transfer  string          `json:"transfer,omitempty"` // Stripe's id
	Failure   string          `json:"failure,omitempty"`
	Reversal  *PayoutReversal `json:"reversal,omitempty" doc:"what is being taken back, or was not; absent when nothing is asked for, or all that was came back"`
	CreatedAt time.Time       `json:"created_at"`
	SettledAt *time.Time      `json:"settled_at,omitempty"`
}

// PayoutReversal is what the platform requested from Stripe to reverse, and has not received yet.
type PayoutReversal struct {
	State   PayoutReversalState `json:"state" enum:"asked,refused"`
	Amount  money.Nano          `json:"amount"`
	Failure string              `json:"failure,omitempty" doc:"Stripe's reason, when it refused; nothing moved"`
}

// PayoutAccount is where the organisation is paid.
type PayoutAccount struct {
	State    PayoutAccountState `json:"state"`
	Country  string             `json:"country,omitempty"`
	Due      []string           `json:"due"`                // what Stripe still wants, by its names, such as external_account
	Disabled string             `json:"disabled,omitempty"` // Stripe's code for why it is off
	Failure  string             `json:"failure,omitempty"`  // why it could not be made
	Stopped  string             `json:"stopped,omitempty"`  // why an admin stopped payouts
	NextAt   *time.Time         `json:"next_at"`            // of the next payout; null while there is no account
	Sandbox  bool               `json:"sandbox,omitempty"`
}

// PayoutSetup is Stripe's page on which the account's owner enters their identity and bank account.
type PayoutSetup struct {
	URL     string        `json:"url" doc:"Stripe's page: for one visit, within minutes. Ask again for another one"`
	Account PayoutAccount `json:"account"`
}

// SetUpPayoutsRequest is the body of SetUpPayouts.
type SetUpPayoutsRequest struct {
	Country string `json:"country,omitempty" doc:"where you are paid, two capital letters; only needed the first time, and final" example:"DE"`
}

// PayNowRequest is the body of PayNow.
type PayNowRequest struct {
	OrgID  string `json:"org_id" doc:"of the operator"`
	Reason string `json:"reason" minLength:"1" maxLength:"500" doc:"the audit trail keeps it"`
}

// ReversePayoutRequest is the body of ReversePayout.
type ReversePayoutRequest struct {
	Amount string `json:"amount,omitempty" doc:"a decimal, in whole cents; left out: all that is left of it" example:"25.00"`
	Reason string `json:"reason" doc:"the operator reads it"`
}

// ChangeOperatorRequest is the body of ChangeOperator.
type ChangeOperatorRequest struct {
	PayoutsStopped *bool  `json:"payouts_stopped,omitempty"`
	FeePPM         *int   `json:"fee_ppm,omitempty" minimum:"0" maximum:"1000000" doc:"the platform's part of what their hosts earn from new leases, in millionths"`
	Reason         string `json:"reason" doc:"the operator reads it"`
}

// EarningsDays selects the days of a statement of earnings.
type EarningsDays struct {
	From string `query:"from" doc:"first day, YYYY-MM-DD in your organisation's zone; left out: the first of this month"`
	To   string `query:"to" doc:"last day; left out: today"`
	Host string `query:"host" doc:"one of your hosts; left out: all"`
}

// EarningsYear selects a calendar year of earnings.
type EarningsYear struct {
	Year string `query:"year" required:"true" doc:"calendar year in your organisation's zone, such as 2026"`
}

// EarningsQuery selects the days of a statement of earnings, and by what it adds up.
type EarningsQuery struct {
	EarningsDays
	By string `query:"by" doc:"host, day or lease; left out: host"`
}

// PayoutsQuery selects payouts.
type PayoutsQuery struct {
	PageOf
	Org string `query:"org_id" maxLength:"100" doc:"to this operator alone"`
}
