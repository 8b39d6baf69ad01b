// Package payment takes money in: top-ups through Stripe.
//
// What always holds:
//   - The ledger is credited only for a payment that Stripe itself says has succeeded, when asked: an event is a hint
//     to ask, never a fact. The entry's key names the payment ("topup:pi_…"), so that the call, the webhook and the
//     poller may all find out, in any order and any number of times, and credit once.
//   - What must be said to Stripe is a row of stripe_outbox, written in the transaction that decides it, with frozen
//     parameters and an idempotency key of its own. The key is reused for 24 h, as long as Stripe remembers it; after
//     that the object is looked up by its metadata before anything is said again under a new key.
//   - A failed payment credits nothing; it is final, and trying again is a new top-up.
package payment

import (
	"context"
	"log/slog"
	"time"

	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/idem"
	"github.com/musterhq/muster/internal/money"
	"github.com/musterhq/muster/internal/stripepay"
)

// Bounds of one top-up.
const (
	MinTopUp = money.Unit
	MaxTopUp = 50_000 * money.Unit
)

// Config of payments.
type Config struct {
	Currency string // ISO 4217, upper case; one with cents
	// DefaultMethod is the payment method of orgs that have saved none: the sandbox's test card "pm_card_visa". Empty:
	// they are sent to Stripe's checkout page.
	DefaultMethod string
	// ReturnURL is where the checkout page sends people back to; required without DefaultMethod.
	ReturnURL string
	Sandbox   bool // the Stripe behind it is our own fake; no real money moves
}

// Payments is the use cases. Safe for concurrent use.
type Payments struct {
	d      *db.DB
	stripe *stripepay.Client
	cfg    Config
	log    *slog.Logger
}

// State of a top-up.
type State string

const (
	Pending   State = "pending"   // Stripe or the payer has yet to answer
	Succeeded State = "succeeded" // credited
	Failed    State = "failed"    // Failure says why
	Canceled  State = "canceled"  // the checkout page was left to expire
)

// TopUp is one payment into an org's wallet.
type TopUp struct {
	ID          id.TopUp   `json:"id"`
	Amount      money.Nano `json:"amount"`
	Currency    string     `json:"currency"`
	State       State      `json:"state"`
	CheckoutURL string     `json:"checkout_url,omitempty"` // where to pay, while pending
	Failure     string     `json:"failure,omitempty"`      // for the payer
	CreatedAt   time.Time  `json:"created_at"`
	SettledAt   *time.Time `json:"settled_at,omitempty"`
	Sandbox     bool       `json:"sandbox,omitempty"`
}

// New checks the configuration.
func New(d *db.DB, stripe *stripepay.Client, cfg Config, log *slog.Logger) (*Payments, error) {
	return &Payments{d, stripe, cfg, log}, nil
}

// TopUp pays amount into the org's wallet: at once with the saved card, else through the checkout page its answer
// names. amount is whole cents between MinTopUp and MaxTopUp, else fault.Invalid. With an idempotency key the same
// top-up is returned again, in its present state. A declined card is a top-up in state Failed, no error. When Stripe
// does not answer, the top-up is returned Pending and settles by itself.
func (p *Payments) TopUp(ctx context.Context, payer account.Principal, amount money.Nano, key idem.Request) (TopUp, error) {
	return TopUp{}, notBuilt()
}

// Get is one of the org's top-ups; another org's is fault.NotFound.
func (p *Payments) Get(ctx context.Context, org id.Org, topup id.TopUp) (TopUp, error) {
	return TopUp{}, notBuilt()
}

// List is the org's top-ups, newest first, those older than before (zero: from the newest).
func (p *Payments) List(ctx context.Context, org id.Org, before id.TopUp, limit int) ([]TopUp, error) {
	return nil, notBuilt()
}

// SendDue says what is due to Stripe and says how many rows it dealt with. Run it every few seconds.
func (p *Payments) SendDue(ctx context.Context) (n int, err error) { return 0, notBuilt() }

// ReceiveWebhook takes in one of Stripe's events: body and Stripe-Signature header as they came. It stores the event
// once and leaves the work to ProcessEvents. A bad signature, or one that is not of these minutes, is fault.Invalid;
// Stripe sends everything again that is not answered with 2xx.
func (p *Payments) ReceiveWebhook(ctx context.Context, payload []byte, signature string) error {
	return notBuilt()
}

// ProcessEvents asks Stripe about the objects of stored events and says how many it dealt with. Run it every few
// seconds and after ReceiveWebhook.
func (p *Payments) ProcessEvents(ctx context.Context) (n int, err error) { return 0, notBuilt() }

// Poll asks Stripe about top-ups that have been pending for a while, in case every event was lost, and says how many
// it settled. Run it every minute.
func (p *Payments) Poll(ctx context.Context) (n int, err error) { return 0, notBuilt() }

func notBuilt() error { return fault.New(fault.Unavailable, "not built yet") }
