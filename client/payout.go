package client

import (
	"context"
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

// PayoutBalance returns the balance of the organisation's earnings.
func (c *Client) PayoutBalance(ctx context.Context) (PayoutBalance, error) {
	return get[PayoutBalance](ctx, c, "/payouts/balance", nil)
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

// Payouts lists the payouts, newest first.
func (c *Client) Payouts(ctx context.Context, at PageOf) (Page[Payout], error) {
	return get[Page[Payout]](ctx, c, "/payouts", at.query())
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

// PayoutAccount returns where the organisation is paid.
func (c *Client) PayoutAccount(ctx context.Context) (PayoutAccount, error) {
	return get[PayoutAccount](ctx, c, "/payouts/account", nil)
}

// PayoutSetup is Stripe's page on which the account's owner enters their identity and bank account.
type PayoutSetup struct {
	URL     string        `json:"url" doc:"Stripe's page: for one visit, within minutes. Ask again for another one"`
	Account PayoutAccount `json:"account"`
}

// SetUpPayouts returns the page. country (two capital letters) is needed only the first time, and cannot be changed.
func (c *Client) SetUpPayouts(ctx context.Context, country string) (PayoutSetup, error) {
	return post[PayoutSetup](ctx, c, "/payouts/account", struct {
		Country string `json:"country,omitempty"`
	}{country})
}
