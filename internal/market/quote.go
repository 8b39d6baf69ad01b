package market

import (
	"context"
	"time"

	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
)

// Quote is an all-in price for a placement whose GPUs are held until it expires.
type Quote struct {
	ID        id.Quote
	Org       id.Org
	User      id.User
	Spec      Spec // as asked; secrets included
	Placement Placement
	State     QuoteState
	Cluster   id.Cluster // once rented
	CreatedAt time.Time
	ExpiresAt time.Time
}

// QuoteState is where a quote is in its short life.
type QuoteState string

const (
	QuoteHeld     QuoteState = "held"
	QuoteRented   QuoteState = "rented"
	QuoteReturned QuoteState = "returned"
	QuoteExpired  QuoteState = "expired"
)

// LeaseOf gives the lease a rank's GPUs are claimed for. It is called once per rank.
type LeaseOf func(rank int) id.Lease

// HoldQuote holds the GPUs of a plan for a quote, inside the caller's transaction. Faults: InsufficientFunds when the wallet
// covers less than 60 s of the price, QuotaExceeded beyond the limits on open quotes and on holding one GPU, ErrStale
// when the plan no longer fits.
func (m *Market) HoldQuote(ctx context.Context, tx *db.Tx, org id.Org, user id.User, spec Spec, plan Placement) (Quote, error) {
	return Quote{}, fault.New(fault.Unavailable, "quotes are not served yet")
}

// GetQuote returns one of org's quotes.
func (m *Market) GetQuote(ctx context.Context, org id.Org, q id.Quote) (Quote, error) {
	return Quote{}, fault.New(fault.Unavailable, "quotes are not served yet")
}

// ReturnQuote gives a quote back. Returning one that is no longer held changes nothing and is no error.
func (m *Market) ReturnQuote(ctx context.Context, org id.Org, q id.Quote) (Quote, error) {
	return Quote{}, fault.New(fault.Unavailable, "quotes are not served yet")
}

// TakeQuote turns the claims of org's quote into claims of leases, inside the renter's transaction: it locks the quote,
// then its hosts. Faults: NotFound; Conflict when it expired, was returned or rented, or a host of it went away.
func (m *Market) TakeQuote(ctx context.Context, tx *db.Tx, org id.Org, q id.Quote, cluster id.Cluster, leases LeaseOf) (Quote, error) {
	return Quote{}, fault.New(fault.Unavailable, "quotes are not served yet")
}

// ExpireQuotes marks due quotes as expired and ends their claims; a worker calls it every few seconds. Nothing waits
// for it: an expired claim gives way by itself.
func (m *Market) ExpireQuotes(ctx context.Context) (expired int, err error) {
	return 0, fault.New(fault.Unavailable, "quotes are not served yet")
}
