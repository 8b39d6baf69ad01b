package client

import (
	"time"

	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/money"
)

// Balance is the money an organisation can spend.
type Balance struct {
	Available     money.Nano  `json:"available"`
	Credit        money.Nano  `json:"credit"` // of an organisation that pays afterwards: the rest of its limit, holds included
	Owed          money.Nano  `json:"owed"`   // used on credit or billed, and not paid yet
	Held          money.Nano  `json:"held"`
	Accrued       money.Nano  `json:"accrued"`
	BurnPerHour   money.Micro `json:"burn_per_hour"`
	RunwaySeconds *int64      `json:"runway_seconds"` // nil: nothing is being billed
	Currency      string      `json:"currency"`

	// StorageOwed is what is not paid for what volumes stored, since StorageOwedSince (nil: nothing is owed). It is taken
	// first from whatever is added.
	StorageOwed      money.Nano `json:"storage_owed"`
	StorageOwedSince *time.Time `json:"storage_owed_since"`
}

// LedgerHead is the newest batch of the ledger's chain.
type LedgerHead struct {
	Batch  int64     `json:"batch"`
	MadeAt time.Time `json:"made_at"`
	Hash   string    `json:"hash"` // hexadecimal
}

// TopUp is one payment into the wallet.
type TopUp struct {
	ID          id.TopUp     `json:"id"`
	Amount      money.Nano   `json:"amount"` // goes into the wallet
	Tax         Tax          `json:"tax"`    // as it was decided when the payment was made
	Total       money.Nano   `json:"total"`  // is charged
	Currency    string       `json:"currency"`
	State       PaymentState `json:"state"`
	CheckoutURL string       `json:"checkout_url,omitempty"` // where to pay, while pending
	ActionURL   string       `json:"action_url,omitempty"`   // where the payer's bank asks them (3-D Secure), while pending
	ReceiptURL  string       `json:"receipt_url,omitempty"`  // Stripe's receipt, once succeeded
	Automatic   bool         `json:"automatic,omitempty"`    // made by auto top-up
	Failure     string       `json:"failure,omitempty"`      // for the payer
	CreatedAt   time.Time    `json:"created_at"`
	SettledAt   *time.Time   `json:"settled_at,omitempty"`
	Sandbox     bool         `json:"sandbox,omitempty"`
}

// Tax is the tax on a payment.
type Tax struct {
	Amount  money.Nano `json:"amount"`  // whole cents
	Percent string     `json:"percent"` // the rate, such as "19" or "25.5"; "0": none
	Name    string     `json:"name"`    // such as VAT; "": none
	Country string     `json:"country"` // where it is taxed, or would be; "": unknown
	Reason  TaxReason  `json:"reason"`
	Note    string     `json:"note"` // a sentence that belongs on the invoice, often ""
}

// Price is what is charged to add an amount.
type Price struct {
	Amount   money.Nano `json:"amount"` // goes into the wallet
	Tax      Tax        `json:"tax"`
	Total    money.Nano `json:"total"` // is charged
	Currency string     `json:"currency"`
}

// Card is a saved card.
type Card struct {
	ID       id.Card   `json:"id"`
	Brand    string    `json:"brand"`
	Last4    string    `json:"last4"`
	ExpMonth int       `json:"exp_month"`
	ExpYear  int       `json:"exp_year"`
	Default  bool      `json:"default"`
	AddedAt  time.Time `json:"added_at"`
}

// CardSetup is a visit to the page on which a card is saved.
type CardSetup struct {
	ID        id.CardSetup `json:"id"`
	State     PaymentState `json:"state"`
	URL       string       `json:"url,omitempty"`     // of the page, while pending
	Failure   string       `json:"failure,omitempty"` // for the payer
	CreatedAt time.Time    `json:"created_at"`
	Sandbox   bool         `json:"sandbox,omitempty"`
}

// AutoTopUp is the setting with which credit is added automatically.
type AutoTopUp struct {
	Enabled   bool       `json:"enabled"`
	Threshold money.Nano `json:"threshold"`         // when less than this is available
	Amount    money.Nano `json:"amount"`            // this is added, whole cents
	DailyCap  money.Nano `json:"daily_cap"`         // and no more than this in 24 hours, tax not counted
	Stopped   string     `json:"stopped,omitempty"` // why it was switched off by itself
}

// Refund is unused balance that is sent back to the payment it came from.
type Refund struct {
	ID        id.Refund    `json:"id"`
	TopUp     id.TopUp     `json:"topup_id"` // the original payment
	Amount    money.Nano   `json:"amount"`   // leaves the wallet
	Tax       money.Nano   `json:"tax"`      // goes back with it
	Total     money.Nano   `json:"total"`    // arrives on the card
	Currency  string       `json:"currency"`
	State     PaymentState `json:"state"` // pending, succeeded, failed
	Failure   string       `json:"failure,omitempty"`
	CreatedAt time.Time    `json:"created_at"`
	SettledAt *time.Time   `json:"settled_at,omitempty"`
}

// Refunds is what can be refunded, and what was.
type Refunds struct {
	Refundable money.Nano `json:"refundable" doc:"what can be given back now"`
	Items      []Refund   `json:"items"`
}

// MadeRefunds are the refunds that give an amount back.
type MadeRefunds struct {
	Items []Refund `json:"items" doc:"one per original payment"`
}

// Redeemed is what a code added.
type Redeemed struct {
	Amount money.Nano `json:"amount" doc:"credit added"`
}

// Transaction is one entry of the organisation's ledger.
type Transaction struct {
	ID   id.LedgerTx `json:"id"`
	At   time.Time   `json:"at"`
	Kind string      `json:"kind"` // topup, authorise, usage, hold_release, earning, …
	Memo string      `json:"memo"`
	Ref  string      `json:"ref,omitempty"` // prefixed id of the cluster or top-up
	// what the org has more (or less) after it: the changes together, what it owes taken off
	Amount         money.Nano `json:"amount"`
	Available      money.Nano `json:"available"`       // change of what is free to spend
	Held           money.Nano `json:"held"`            // change of what is set aside for clusters
	Earned         money.Nano `json:"earned"`          // change of what its hosts earned
	Owed           money.Nano `json:"owed"`            // change of what was used on credit and is to be paid
	Bond           money.Nano `json:"bond"`            // change of what is kept as the bond of its hosts
	AvailableAfter money.Nano `json:"available_after"` // right after it
	HeldAfter      money.Nano `json:"held_after"`
	EarnedAfter    money.Nano `json:"earned_after"`
	OwedAfter      money.Nano `json:"owed_after"`
	BondAfter      money.Nano `json:"bond_after"`
}

// PromoCode adds credit, once for each person and card.
type PromoCode struct {
	Code      string     `json:"code"`
	Amount    money.Nano `json:"amount"`
	Currency  string     `json:"currency"`
	MaxUses   int        `json:"max_uses"`
	Uses      int        `json:"uses"`
	ExpiresAt *time.Time `json:"expires_at"` // nil: never
	CreatedAt time.Time  `json:"created_at"`
}

// Redemption is an organisation's use of a code.
type Redemption struct {
	Code     string     `json:"code"`
	Org      id.Org     `json:"org_id"`
	OrgName  string     `json:"org_name"`
	Amount   money.Nano `json:"amount"`
	Currency string     `json:"currency"`
	At       time.Time  `json:"redeemed_at"`
}

// CreateTopUpRequest is the body of CreateTopUp.
type CreateTopUpRequest struct {
	Amount string `json:"amount" doc:"goes into the wallet, without tax; a decimal, in whole cents" example:"25.00"`
	Total  string `json:"total,omitempty" doc:"the total with tax that getPrice returned: if it has changed, nothing is charged (409 conflict); left out: any total" example:"29.75"`
	CardID string `json:"card_id,omitempty" doc:"one of your cards; left out: the default one, or Stripe's page when there is none"`
}

// ChangeCardRequest is the body of ChangeCard.
type ChangeCardRequest struct {
	Default bool `json:"default" doc:"true: top-ups that name no card are paid with it"`
}

// SetAutoTopUpRequest is the body of SetAutoTopUp.
type SetAutoTopUpRequest struct {
	Enabled   bool   `json:"enabled"`
	Threshold string `json:"threshold,omitempty" doc:"credit is added when less than this is available" example:"20.00"`
	Amount    string `json:"amount,omitempty" doc:"how much is added; whole cents" example:"50.00"`
	DailyCap  string `json:"daily_cap,omitempty" doc:"no more than this in 24 hours" example:"200.00"`
}

// CreateRefundRequest is the body of CreateRefund.
type CreateRefundRequest struct {
	Amount string `json:"amount" doc:"a decimal, in whole cents" example:"25.00"`
}

// RedeemCodeRequest is the body of RedeemCode.
type RedeemCodeRequest struct {
	Code string `json:"code" maxLength:"100"`
}

// CreatePromoCodeRequest is the body of CreatePromoCode.
type CreatePromoCodeRequest struct {
	Code      string     `json:"code" doc:"8 to 40 letters, digits and dashes"`
	Amount    string     `json:"amount" doc:"a decimal, in whole cents" example:"10.00"`
	MaxUses   int        `json:"max_uses" minimum:"1" doc:"organisations that may use it, each once"`
	ExpiresAt *time.Time `json:"expires_at,omitempty"`
	Reason    string     `json:"reason" minLength:"1" maxLength:"500" doc:"the audit trail keeps it"`
}

// DisablePromoCodeRequest is the body of DisablePromoCode.
type DisablePromoCodeRequest struct {
	Reason string `json:"reason" minLength:"1" maxLength:"500" doc:"the audit trail keeps it"`
}

// ReleaseRefundRequest is the body of ReleaseRefund.
type ReleaseRefundRequest struct {
	Reason string `json:"reason" minLength:"1" maxLength:"500" doc:"the audit trail keeps it"`
}

// PriceQuery selects the amount to price.
type PriceQuery struct {
	Amount string `query:"amount" required:"true" doc:"a decimal, in whole cents" example:"25.00"`
}

// StatementDays selects the days of a statement.
type StatementDays struct {
	From string `query:"from" doc:"first day, YYYY-MM-DD in your organisation's zone; left out: the first of this month"`
	To   string `query:"to" doc:"last day; left out: today"`
}

// StatementQuery selects the days of a statement, and by what it adds up.
type StatementQuery struct {
	StatementDays
	By string `query:"by" maxLength:"100" doc:"cluster, day, project, person, lease or label:KEY; left out: cluster"`
}
