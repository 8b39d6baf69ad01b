// Package payment takes money in: top-ups through Stripe.
//
// What always holds:
//   - The ledger is credited only for a payment that succeeded by Stripe's own answer to a read: an event is a reason
//     to read, never a fact. The entry's key names the payment ("topup:pi_…"), so that the call, the webhook and the
//     poller may all learn of it, in any order and any number of times, and credit once.
//   - What must be sent to Stripe is a row of stripe_outbox, written in the transaction that decides it, with frozen
//     parameters and an idempotency key. The key is reused for 24 h, as long as Stripe remembers it; after that the
//     object is looked up by its metadata before anything is sent under a new key.
//   - A failed payment credits nothing; it is final, and trying again is a new top-up.
//   - Amounts exclude tax. What tax a payment bears is decided and stored when it is created; it is charged in addition
//     to the amount, booked with it to tax_payable, and goes back with it in proportion (package tax).
//   - What is disputed cannot be spent or given back: it is set aside, and as far as there is nothing to set aside it
//     is reserved in the org's wallet, so that whatever is credited later counts towards it. What a lost dispute cost
//     is repaid the same way.
//   - A card whose owner took a payment back cannot pay any more, for any org.
//   - A payment's receipt is written in the transaction that books it, and never changes, even if its parties change
//     their names later.
package payment

import (
	"context"
	"errors"
	"log/slog"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/billing/tax"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/money"
	"github.com/musterhq/muster/internal/stripe"
	"github.com/musterhq/muster/internal/stripe/events"
	"github.com/musterhq/muster/internal/stripe/outbox"
)

// Bounds of one top-up.
const (
	MinTopUp = money.Unit
	MaxTopUp = 50_000 * money.Unit
)

// Config of payments.
type Config struct {
	Currency string // ISO 4217, upper case; one of money.Currencies
	// DefaultMethod is the payment method of orgs that have saved none: the sandbox's test card "pm_card_visa". Empty:
	// they are sent to Stripe's checkout page.
	DefaultMethod string
	// ReturnURL is where the checkout page, the page for saving a card and the payer's bank send people back to.
	ReturnURL string
	// UnverifiedLimit is what an org may add before an owner's e-mail address and a card are verified; 0: any amount.
	UnverifiedLimit money.Nano
	// RefundLimit is what an org may be given back within 30 days at its own request, if it has used less than that: see
	// refundRoom. 0: any amount.
	RefundLimit money.Nano
	// DisputedLimit is what an org may add while a payment of it is disputed; 0: DefaultDisputedLimit.
	DisputedLimit money.Nano
	// Merchant is who sells, as receipts name it: of record.
	Merchant account.Party
	// Taxer determines what tax a payment bears; nil: none.
	Taxer   tax.Taxer
	Sandbox bool // the Stripe behind it is our own fake; no real money moves
	// TestCards: all organisations use the same test cards, so a card in common does not link them.
	TestCards bool
}

// Payments is the use cases, by what they are about. Each is safe for concurrent use, and holds those that it needs.
type Payments struct {
	Taxes       *Taxes
	Receipts    *Receipts
	Standings   *Standings
	Claims      *Claims
	PromoCodes  *PromoCodes
	Corrections *Corrections
	Invoices    *Invoices
	Cards       *Cards
	Refunds     *Refunds
	Disputes    *Disputes
	TopUps      *TopUps
	AutoTopUps  *AutoTopUps
	Adoption    *Adoption

	core *core
}

// core is what each of them works with.
type core struct {
	d      *db.DB
	out    *outbox.Outbox
	in     *events.Inbox
	stripe *stripe.Client // of out, for reading
	cfg    Config
	log    *slog.Logger
}

// State of a top-up.
type State = client.PaymentState

const (
	Pending   = client.PaymentPending   // Stripe or the payer has yet to answer
	Succeeded = client.PaymentSucceeded // credited
	Failed    = client.PaymentFailed    // see Failure
	Canceled  = client.PaymentCanceled  // the checkout page was left to expire
)

// TopUp is one payment into an org's wallet.
type TopUp = client.TopUp

// Kinds of outbox rows. Those that bill orgs afterwards are in billing.go.
const (
	kindCustomer = "customer.create"
	kindPayment  = "payment.create"
	kindCheckout = "checkout.create"
	kindCancel   = "payment.cancel"
	kindSetup    = "setup.create"
	kindDetach   = "card.detach"
	kindRefund   = "refund.create"
)

// New checks the configuration and registers with out what payments send to Stripe, and with in the objects of Stripe
// that they read. Call it before out sends or in processes anything.
func New(d *db.DB, out *outbox.Outbox, in *events.Inbox, cfg Config, log *slog.Logger) (*Payments, error) {
	if cfg.ReturnURL == "" {
		return nil, errors.New("payments need a return URL for the checkout page")
	}
	if err := money.CheckCurrency(cfg.Currency); err != nil {
		return nil, err
	}
	if cfg.DisputedLimit == 0 {
		cfg.DisputedLimit = DefaultDisputedLimit
	}
	if cfg.Taxer == nil {
		cfg.Taxer = tax.None{}
	}
	c := &core{d: d, out: out, in: in, stripe: out.Client(), cfg: cfg, log: log}
	orgs := &customers{c}
	p := &Payments{
		Receipts:    &Receipts{c},
		Standings:   &Standings{c},
		Claims:      &Claims{c},
		Corrections: &Corrections{c},
		core:        c,
	}
	p.Taxes = &Taxes{core: c, receipts: p.Receipts}
	p.PromoCodes = &PromoCodes{core: c, standings: p.Standings}
	p.Invoices = &Invoices{core: c, customers: orgs, taxes: p.Taxes}
	p.Cards = &Cards{core: c, customers: orgs, invoices: p.Invoices}
	p.Refunds = &Refunds{core: c, taxes: p.Taxes, receipts: p.Receipts, invoices: p.Invoices}
	p.Disputes = &Disputes{core: c, taxes: p.Taxes, claims: p.Claims, invoices: p.Invoices}
	p.TopUps = &TopUps{
		core:      c,
		customers: orgs,
		taxes:     p.Taxes,
		receipts:  p.Receipts,
		standings: p.Standings,
		claims:    p.Claims,
		cards:     p.Cards,
		refunds:   p.Refunds,
	}
	p.AutoTopUps = &AutoTopUps{core: c, taxes: p.Taxes, standings: p.Standings, topups: p.TopUps}
	p.Adoption = &Adoption{
		core:     c,
		invoices: p.Invoices,
		taxes:    p.Taxes,
		cards:    p.Cards,
		refunds:  p.Refunds,
		disputes: p.Disputes,
		topups:   p.TopUps,
	}
	p.register(orgs)
	return p, nil
}

// register names to the outbox who sends each kind of row, and to the inbox who reads each kind of object.
func (p *Payments) register(orgs *customers) {
	out, in := p.core.out, p.core.in
	out.Register(outbox.Kind{Name: kindCustomer, First: true, NoMoney: true}, customerSender{orgs})
	out.Register(outbox.Kind{Name: kindPayment}, paymentSender{topupSender{p.TopUps}})
	out.Register(outbox.Kind{Name: kindCheckout}, checkoutSender{topupSender{p.TopUps}})
	out.Register(outbox.Kind{Name: kindCancel, NoMoney: true}, cancelSender{p.TopUps})
	out.Register(outbox.Kind{Name: kindSetup, NoMoney: true}, setupSender{p.Cards})
	out.Register(outbox.Kind{Name: kindDetach, NoMoney: true}, detachSender{p.Cards})
	out.Register(outbox.Kind{Name: kindRefund}, refundSender{p.Refunds})
	in.Handle("pi_", func(ctx context.Context, payment string) (string, error) {
		return p.Adoption.refreshPayment(ctx, payment, false)
	})
	in.Handle("cs_", p.Adoption.refreshCheckout)
	in.Handle("seti_", func(ctx context.Context, setup string) (string, error) {
		return p.Cards.refreshSetup(ctx, setup, false)
	})
	in.Handle("re_", p.Refunds.refresh)
	in.Handle("dp_", p.Disputes.refresh)
	in.Handle("du_", p.Disputes.refresh)
	in.Handle("issfr_", p.Disputes.refreshFraudWarning)
	in.Handle("mtr_", p.Invoices.meterErrors)
}
