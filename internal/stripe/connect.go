package stripe

import (
	"context"
	"slices"

	"github.com/stripe/stripe-go/v76"
)

// metaOrg is the metadata key under which an object names the org it is for.
const metaOrg = "org"

// NewAccount asks for a Connect Express account: an operator's own account at Stripe, to which the platform transfers
// what they earned. They give their identity and bank account to Stripe, not to us.
type NewAccount struct {
	Org     string `json:"org"` // prefixed id, kept as metadata
	Country string `json:"country"`
	Email   string `json:"email"`
	// Recipient makes the account under Stripe's recipient service agreement, for countries in which Stripe does not let
	// the platform have accounts under the full one.
	Recipient bool `json:"recipient,omitempty"`
}

// Account is a connected account as it stands.
type Account struct {
	ID        string   // acct_…
	Org       string   // from its metadata; empty for one that is not ours
	Submitted bool     // its owner went through Stripe's form once
	Transfers bool     // it may receive transfers
	Payouts   bool     // Stripe pays on to its bank
	Due       []string // what Stripe still wants, by its names, such as "external_account"; sorted
	Pending   []string // what Stripe is checking
	Disabled  string   // why it is switched off, Stripe's word; empty when it is not
}

// Ready reports whether money sent there arrives at the operator's bank.
func (a Account) Ready() bool { return a.Transfers && a.Payouts && a.Disabled == "" }

// CreateAccount makes an account.
func (c *Client) CreateAccount(ctx context.Context, key string, p NewAccount) (Account, error) {
	params := &stripe.AccountParams{
		Type:    stripe.String(string(stripe.AccountTypeExpress)),
		Country: stripe.String(p.Country),
		Email:   stripe.String(p.Email),
		Capabilities: &stripe.AccountCapabilitiesParams{
			Transfers: &stripe.AccountCapabilitiesTransfersParams{Requested: stripe.Bool(true)},
		},
	}
	if p.Recipient {
		params.TOSAcceptance = &stripe.AccountTOSAcceptanceParams{ServiceAgreement: stripe.String("recipient")}
	}
	params.AddMetadata(metaOrg, p.Org)
	params.Context = ctx
	params.SetIdempotencyKey(key)
	a, err := c.api.Accounts.New(params)
	if err != nil {
		return Account{}, failure(err)
	}
	return account(a), nil
}

// Account asks for the present state of an account.
func (c *Client) Account(ctx context.Context, id string) (Account, error) {
	params := &stripe.AccountParams{}
	params.Context = ctx
	a, err := c.api.Accounts.GetByID(id, params)
	if err != nil {
		return Account{}, failure(err)
	}
	return account(a), nil
}

func account(a *stripe.Account) Account {
	out := Account{ID: a.ID, Org: a.Metadata[metaOrg], Submitted: a.DetailsSubmitted, Payouts: a.PayoutsEnabled}
	if a.Capabilities != nil {
		out.Transfers = a.Capabilities.Transfers == stripe.AccountCapabilityStatusActive
	}
	if r := a.Requirements; r != nil {
		out.Due = slices.Concat(r.CurrentlyDue, r.PastDue)
		slices.Sort(out.Due)
		out.Due, out.Pending, out.Disabled = slices.Compact(out.Due), r.PendingVerification, string(r.DisabledReason)
	}
	return out
}

// NewAccountLink creates a page at Stripe, valid for minutes and for one visit, on which the account's owner gives
// what Stripe wants to know. Refresh is where a visitor whose link is spent is sent, for another one.
type NewAccountLink struct {
	Account string
	Refresh string
	Return  string
}

// CreateAccountLink makes the page and returns its URL. The key is of no weight: a page made twice does no harm.
func (c *Client) CreateAccountLink(ctx context.Context, key string, p NewAccountLink) (string, error) {
	params := &stripe.AccountLinkParams{
		Account: stripe.String(p.Account), RefreshURL: stripe.String(p.Refresh), ReturnURL: stripe.String(p.Return),
		Type: stripe.String(string(stripe.AccountLinkTypeAccountOnboarding)),
	}
	params.Context = ctx
	params.SetIdempotencyKey(key)
	l, err := c.api.AccountLinks.New(params)
	if err != nil {
		return "", failure(err)
	}
	return l.URL, nil
}
