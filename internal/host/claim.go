package host

import (
	"context"
	"time"

	"github.com/google/uuid"

	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
)

// ClaimKind is what a GPU is taken for.
type ClaimKind string

const (
	ForQuote       ClaimKind = "quote"
	ForLease       ClaimKind = "lease"
	ForOwnUse      ClaimKind = "own_use"
	ForMaintenance ClaimKind = "maintenance"
)

// Reasons for the end of a claim.
const (
	EndRented    = "rented"    // the quote became a lease
	EndReturned  = "returned"  // the quote was given back
	EndExpired   = "expired"   // the quote ran out
	EndReleased  = "released"  // the host no longer shows the ended lease
	EndAbandoned = "abandoned" // the host was out of reach for AbandonAfter
)

// GPURef is one GPU and the host it is in.
type GPURef struct {
	Host id.Host
	GPU  id.GPU
}

// ErrTaken means that a GPU is claimed, quarantined or gone: nothing was claimed, and the transaction should be given
// up and planned anew.
var ErrTaken = fault.New(fault.NoCapacity, "A GPU was taken by somebody else in the meantime.")

// Claim takes GPUs for ref (a quote, a lease, a host). The caller has locked their hosts. expires is for quotes only:
// a quote's claim that has run out no longer stands in anybody's way.
func Claim(ctx context.Context, tx *db.Tx, kind ClaimKind, ref uuid.UUID, gpus []GPURef, expires *time.Time) error {
	return notBuilt()
}

// EndClaims frees what ref holds; the caller has locked the hosts, or ref is a quote. Without claims it does nothing.
func EndClaims(ctx context.Context, tx *db.Tx, ref uuid.UUID, reason string) error { return notBuilt() }

// ExpireClaims ends quote claims that have run out, at most limit, and says how many.
func ExpireClaims(ctx context.Context, d *db.DB, limit int) (int, error) { return 0, notBuilt() }

// AbandonClaims ends the claims of ended leases on hosts that have been out of reach for AbandonAfter; those hosts
// sell nothing until a full report shows that they are clean. Leases that have not ended keep their claims: whoever
// owns the lease ends it first. It says how many claims ended.
func AbandonClaims(ctx context.Context, d *db.DB) (int, error) { return 0, notBuilt() }
