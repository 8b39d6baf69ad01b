package client

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
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

// Balance returns the organisation's balance.
func (c *Client) Balance(ctx context.Context) (Balance, error) {
	return get[Balance](ctx, c, "/billing/balance", nil)
}

// ClusterProof returns everything that a cluster's bill depends on: a file for `muster billing verify`.
func (c *Client) ClusterProof(ctx context.Context, cl id.Cluster) (json.RawMessage, error) {
	return get[json.RawMessage](ctx, c, "/clusters/"+cl.String()+"/proof", nil)
}

// LeaseProof returns the same for one lease, for its renter and for the operator of its host.
func (c *Client) LeaseProof(ctx context.Context, l id.Lease) (json.RawMessage, error) {
	return get[json.RawMessage](ctx, c, "/leases/"+l.String()+"/proof", nil)
}

// LedgerHead is the newest batch of the ledger's chain.
type LedgerHead struct {
	Batch  int64     `json:"batch"`
	MadeAt time.Time `json:"made_at"`
	Hash   string    `json:"hash"` // hexadecimal
}

// LedgerHead returns the newest batch of the ledger's chain. It needs no token.
func (c *Client) LedgerHead(ctx context.Context) (LedgerHead, error) {
	return get[LedgerHead](ctx, c, "/ledger/head", nil)
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

// TopUp adds credit with the default card. If the card is declined, the result is a failed top-up, not an error.
func (c *Client) TopUp(ctx context.Context, amount money.Nano) (TopUp, error) {
	return c.TopUpWith(ctx, amount, id.Card{})
}

// TopUpWith is TopUp with a given card; zero: the default card.
func (c *Client) TopUpWith(ctx context.Context, amount money.Nano, card id.Card) (TopUp, error) {
	return c.TopUpAt(ctx, amount, 0, card)
}

// TopUpAt is TopUpWith, but charges only if the amount with tax is total, as returned by Price; zero: any total.
func (c *Client) TopUpAt(ctx context.Context, amount, total money.Nano, card id.Card) (TopUp, error) {
	in := map[string]string{"amount": amount.String()}
	if total > 0 {
		in["total"] = total.String()
	}
	if !card.IsZero() {
		in["card_id"] = card.String()
	}
	return post[TopUp](ctx, c, "/billing/topups", in)
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

// Price returns what would be charged, tax included, to add an amount.
func (c *Client) Price(ctx context.Context, amount money.Nano) (Price, error) {
	return get[Price](ctx, c, "/billing/price", url.Values{"amount": {amount.String()}})
}

// TopUps lists the organisation's payments, newest first.
func (c *Client) TopUps(ctx context.Context, p PageOf) (Page[TopUp], error) {
	return get[Page[TopUp]](ctx, c, "/billing/topups", p.query())
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

// Cards lists the organisation's cards, newest first.
func (c *Client) Cards(ctx context.Context) (Page[Card], error) {
	return get[Page[Card]](ctx, c, "/billing/cards", nil)
}

// AddCard returns the page on which a card is saved. Open its URL in a browser.
func (c *Client) AddCard(ctx context.Context) (CardSetup, error) {
	return post[CardSetup](ctx, c, "/billing/cards", struct{}{})
}

// CardSetup returns whether the card was saved.
func (c *Client) CardSetup(ctx context.Context, s id.CardSetup) (CardSetup, error) {
	return get[CardSetup](ctx, c, "/billing/card-setups/"+s.String(), nil)
}

// SetDefaultCard makes a card the one that pays if none is named.
func (c *Client) SetDefaultCard(ctx context.Context, card id.Card) error {
	return c.call(ctx, http.MethodPatch, "/billing/cards/"+card.String(), nil, map[string]bool{"default": true}, nil)
}

// RemoveCard deletes a card.
func (c *Client) RemoveCard(ctx context.Context, card id.Card) error {
	return c.remove(ctx, "/billing/cards/"+card.String(), nil)
}

// GetTopUp returns a payment.
func (c *Client) GetTopUp(ctx context.Context, t id.TopUp) (TopUp, error) {
	return get[TopUp](ctx, c, "/billing/topups/"+t.String(), nil)
}

// AutoTopUp is the setting with which credit is added automatically.
type AutoTopUp struct {
	Enabled   bool       `json:"enabled"`
	Threshold money.Nano `json:"threshold"`         // when less than this is available
	Amount    money.Nano `json:"amount"`            // this is added, whole cents
	DailyCap  money.Nano `json:"daily_cap"`         // and no more than this in 24 hours, tax not counted
	Stopped   string     `json:"stopped,omitempty"` // why it was switched off by itself
}

// AutoTopUp returns the automatic top-up.
func (c *Client) AutoTopUp(ctx context.Context) (AutoTopUp, error) {
	return get[AutoTopUp](ctx, c, "/billing/auto-topup", nil)
}

// SetAutoTopUp replaces the automatic top-up.
func (c *Client) SetAutoTopUp(ctx context.Context, a AutoTopUp) (out AutoTopUp, err error) {
	in := map[string]any{"enabled": a.Enabled}
	if a.Enabled {
		in["threshold"], in["amount"], in["daily_cap"] = a.Threshold, a.Amount, a.DailyCap
	}
	err = c.call(ctx, http.MethodPatch, "/billing/auto-topup", nil, in, &out)
	return out, err
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

// Refunds returns what can be refunded, and what was.
func (c *Client) Refunds(ctx context.Context) (Refunds, error) {
	return get[Refunds](ctx, c, "/billing/refunds", nil)
}

// MadeRefunds are the refunds that give an amount back.
type MadeRefunds struct {
	Items []Refund `json:"items" doc:"one per original payment"`
}

// GiveBack refunds unused balance to the cards that paid it, with one refund per payment.
func (c *Client) GiveBack(ctx context.Context, amount money.Nano) (MadeRefunds, error) {
	return post[MadeRefunds](ctx, c, "/billing/refunds", map[string]money.Nano{"amount": amount})
}

// Redeemed is what a code added.
type Redeemed struct {
	Amount money.Nano `json:"amount" doc:"credit added"`
}

// Redeem adds a promotional code's credit.
func (c *Client) Redeem(ctx context.Context, code string) (Redeemed, error) {
	return post[Redeemed](ctx, c, "/billing/promo", map[string]string{"code": code})
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

// Transactions lists the organisation's ledger, newest first.
func (c *Client) Transactions(ctx context.Context, p PageOf) (Page[Transaction], error) {
	return get[Page[Transaction]](ctx, c, "/billing/transactions", p.query())
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

// PromoCodes lists the latest codes. PromoCodes and the calls below are for admins.
func (c *Client) PromoCodes(ctx context.Context) (Page[PromoCode], error) {
	return get[Page[PromoCode]](ctx, c, "/admin/promo-codes", nil)
}

// CreatePromoCode creates a code with p's Code, Amount, MaxUses and ExpiresAt. The audit log has the reason.
func (c *Client) CreatePromoCode(ctx context.Context, p PromoCode, reason string) (PromoCode, error) {
	in := map[string]any{"code": p.Code, "amount": p.Amount, "max_uses": p.MaxUses, "reason": reason}
	if p.ExpiresAt != nil {
		in["expires_at"] = p.ExpiresAt
	}
	return post[PromoCode](ctx, c, "/admin/promo-codes", in)
}

// DisablePromoCode ends a code now. Credit that it added stays. The audit log has the reason.
func (c *Client) DisablePromoCode(ctx context.Context, code, reason string) (PromoCode, error) {
	return post[PromoCode](ctx, c, "/admin/promo-codes/"+url.PathEscape(code)+"/disable",
		map[string]string{"reason": reason})
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

// Redemptions lists the uses of a code ("": of all) by an organisation (zero: by all), newest first.
func (c *Client) Redemptions(ctx context.Context, code string, org id.Org, p PageOf) (Page[Redemption], error) {
	q := p.query()
	if code != "" {
		q.Set("code", code)
	}
	if !org.IsZero() {
		q.Set("org_id", org.String())
	}
	return get[Page[Redemption]](ctx, c, "/admin/promo-redemptions", q)
}
