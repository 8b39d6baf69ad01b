// Package payout takes money out: what operators have earned becomes payable after a holdback, and is sent to their own
// accounts at Stripe (Connect).
//
// What always holds:
//   - What an operator earned less than the holdback ago is not payable: until then a renter's payment may still be
//     disputed, or a host's fault found.
//   - What is given back for a host's fault is taken from what is pending; if that does not suffice, pending falls
//     below zero and counts against what is payable until later earnings have covered it.
//   - While a lease of the operator's is frozen, because its host signed two different records of the same time,
//     nothing becomes payable.
//   - What was earned from payments that are disputed now is neither made payable nor paid out.
//   - What was earned from a renter who is linked with the operator (one person in both, the same VAT id, name and
//     address, or card) becomes payable only once an admin has approved it; what they refuse never does.
//   - What was earned from a payment that was taken back for good waits for a decision too, as far as it is not paid
//     out.
//   - Nothing is created or lost: what leaves host_pending arrives in host_payable, which never falls below zero; what
//     leaves host_payable is on its way, and ends at Stripe or back in host_payable.
//   - Each nano-unit is paid out at most once. A payout leaves host_payable in the transaction that queues its
//     transfer, under a separate key; it returns only when Stripe certainly did not make the transfer. The entry
//     "transfer:tr_…" names the transfer, so that the call, the webhook and the reconciliation may all learn of it, in
//     any order and any number of times, and book it once. A transfer that turns up after it was given up counts
//     against what is pending.
//   - Payouts are whole cents; what is left of a cent stays with the operator and is paid later.
package payout

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/money"
	"github.com/musterhq/muster/internal/stripe/events"
	"github.com/musterhq/muster/internal/stripe/outbox"
)

// Defaults of Config.
const (
	DefaultMinimum = 10 * money.Unit
	DefaultEvery   = 7 * 24 * time.Hour
)

// Config of payouts.
type Config struct {
	Currency string        // ISO 4217, upper case
	Holdback time.Duration // how long earnings wait before they are payable; 0 = DefaultHoldback
	// NewHoldback is the holdback of operators that first earned less than 90 days ago; shorter than Holdback: the same.
	NewHoldback time.Duration
	Minimum     money.Nano    // less than this is not paid out; 0 = DefaultMinimum
	Every       time.Duration // between payouts; 0 = DefaultEvery: on Mondays at 06:00 UTC
	// PageURL is the operators' payouts page, absolute: Stripe's form sends them back there.
	PageURL string
	// RecipientCountries are those, ISO 3166-1 alpha-2, whose operators get accounts under Stripe's recipient service
	// agreement.
	RecipientCountries []string
	Merchant           account.Party // of record: the recipient of self-billing documents
	Sandbox            bool          // the Stripe behind it is our own fake
}

// Payouts is the use cases. Safe for concurrent use.
type Payouts struct {
	d   *db.DB
	out *outbox.Outbox
	cfg Config
	log *slog.Logger
}

// New checks the configuration and registers with out what payouts send to Stripe, and with in the accounts and
// transfers that they read. Call it before out sends or in processes anything.
func New(d *db.DB, out *outbox.Outbox, in *events.Inbox, cfg Config, log *slog.Logger) (*Payouts, error) {
	if cfg.Minimum == 0 {
		cfg.Minimum = DefaultMinimum
	}
	if cfg.Holdback == 0 {
		cfg.Holdback = DefaultHoldback
	}
	if cfg.Every == 0 {
		cfg.Every = DefaultEvery
	}
	switch {
	case cfg.Minimum < money.Cent:
		return nil, errors.New("the smallest payout cannot be below a cent")
	case cfg.Every < time.Second:
		return nil, errors.New("payouts cannot be made more often than every second")
	case cfg.Holdback < 0:
		return nil, errors.New("the holdback cannot be negative")
	case cfg.PageURL == "":
		return nil, fmt.Errorf("payouts need the URL of the page to which operators return")
	}
	p := &Payouts{d: d, out: out, cfg: cfg, log: log}
	out.Register(outbox.Kind{Name: kindAccount}, accountSender{p})
	out.Register(outbox.Kind{Name: kindTransfer}, transferSender{p})
	out.Register(outbox.Kind{Name: kindReversal}, reversalSender{p})
	in.Handle("acct_", p.refreshAccount)
	in.Handle("tr_", p.refreshTransfer)
	return p, nil
}

// Kinds of outbox rows.
const (
	kindAccount  = "account.create"
	kindTransfer = "transfer.create"
	kindReversal = "transfer.reverse"
)
