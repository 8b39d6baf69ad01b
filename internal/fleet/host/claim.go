package host

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/metrics"
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

// ErrTaken means that a GPU is claimed, quarantined, in use by its owner or gone: nothing was claimed, and the
// transaction should be given up and planned anew.
var ErrTaken = fault.New(fault.NoCapacity, "A GPU was taken by somebody else in the meantime.")

// ClaimSet is the GPUs of one ref: a quote, a lease, a host.
type ClaimSet struct {
	Ref  uuid.UUID
	GPUs []GPURef
}

// Claim takes GPUs for ref (a quote, a lease, a host). The caller has locked their hosts. expires is for quotes only:
// a quote's claim that has run out no longer stands in anybody's way.
func Claim(ctx context.Context, tx *db.Tx, kind ClaimKind, ref uuid.UUID, gpus []GPURef, expires *time.Time) error {
	return ClaimAll(ctx, tx, kind, []ClaimSet{{ref, gpus}}, expires)
}

// ClaimAll is Claim for several refs at once: all of it or ErrTaken.
func ClaimAll(ctx context.Context, tx *db.Tx, kind ClaimKind, takings []ClaimSet, expires *time.Time) error {
	p := claimsOf(kind, takings, expires)
	taken, err := insertClaims(ctx, db.NewPipe(tx.Q), p)
	if err == nil && taken == len(p.Gpus) {
		metrics.Claim(string(kind), false)
	}
	if err != nil || taken == len(p.Gpus) {
		return err
	}
	// Others stand in the way: quotes' claims that have run out no longer do.
	pipe, inner := tx.Pipe()
	if err := inner.Q.ExpireClaimsOn(ctx, p.Gpus); err != nil {
		return fmt.Errorf("host: expire claims: %w", err)
	}
	more, err := insertClaims(ctx, pipe, p)
	if err != nil {
		return err
	}
	metrics.Claim(string(kind), taken+more != len(p.Gpus))
	if taken+more != len(p.Gpus) {
		return ErrTaken
	}
	return nil
}

// QueueClaims is ClaimAll as part of a pipe, after the locks of the hosts and before later ones; lapsed says that
// quotes' claims that have run out may be in the way. Its result, after Send, is ErrTaken when not all could be
// claimed.
func QueueClaims(ctx context.Context, p *db.Pipe, kind ClaimKind, takings []ClaimSet,
	lapsed bool) (claimed func() error) {
	rows := claimsOf(kind, takings, nil)
	if lapsed {
		_ = p.Q.ExpireClaimsOn(ctx, rows.Gpus) // nil now: a pipe
	}
	inserted := p.Q.InsertClaims(ctx, []dbq.InsertClaimsParams{rows})
	return func() error {
		var n int64
		inserted.QueryRow(db.Keep(p, &n))
		taken := int(n) != len(rows.Gpus)
		metrics.Claim(string(kind), taken)
		if taken {
			return ErrTaken
		}
		return nil
	}
}

func claimsOf(kind ClaimKind, takings []ClaimSet, expires *time.Time) dbq.InsertClaimsParams {
	p := dbq.InsertClaimsParams{Kind: string(kind), ExpiresAt: expires}
	for _, t := range takings {
		for _, g := range t.GPUs {
			p.Ids = append(p.Ids, pgtype.UUID{Bytes: id.New[id.Claim]().UUID(), Valid: true})
			p.Gpus = append(p.Gpus, pgtype.UUID{Bytes: g.GPU.UUID(), Valid: true})
			p.Hosts = append(p.Hosts, pgtype.UUID{Bytes: g.Host.UUID(), Valid: true})
			p.Refs = append(p.Refs, pgtype.UUID{Bytes: t.Ref, Valid: true})
		}
	}
	return p
}

// insertClaims takes those of the GPUs that are free and says how many.
func insertClaims(ctx context.Context, pipe *db.Pipe, p dbq.InsertClaimsParams) (int, error) {
	inserted := pipe.Q.InsertClaims(ctx, []dbq.InsertClaimsParams{p})
	pipe.Send(ctx)
	var n int64
	inserted.QueryRow(db.Keep(pipe, &n))
	if err := pipe.Close(); err != nil {
		return 0, fmt.Errorf("host: claim: %w", err)
	}
	return int(n), nil
}

// EndClaims frees what ref holds; the caller has locked the hosts, or ref is a quote. Without claims it does nothing.
func EndClaims(ctx context.Context, tx *db.Tx, ref uuid.UUID, reason string) error {
	if err := tx.Q.EndClaims(ctx, reason, pgtype.UUID{Bytes: ref, Valid: true}); err != nil {
		return fmt.Errorf("host: end claims of %s: %w", ref, err)
	}
	return nil
}

// ExpireClaims ends quote claims that have run out, at most limit, and says how many. It waits for nobody.
func ExpireClaims(ctx context.Context, d *db.DB, limit int) (int, error) {
	n, err := d.Q.ExpireClaims(ctx, int32(limit))
	if err != nil {
		return 0, fmt.Errorf("host: expire claims: %w", err)
	}
	return int(n), nil
}

// AbandonClaims ends the claims of ended leases on hosts that have been out of reach for AbandonAfter; those hosts
// sell nothing until a full report shows that they are clean. Leases that have not ended keep their claims: whoever
// owns the lease ends it first. It says for how many leases.
func AbandonClaims(ctx context.Context, d *db.DB) (int, error) {
	after := AbandonAfter.Milliseconds()
	rows, err := d.Q.AbandonedLeases(ctx, after)
	if err != nil {
		return 0, fmt.Errorf("host: find abandoned claims: %w", err)
	}
	leases := map[id.Host][]pgtype.UUID{}
	for _, r := range rows {
		leases[r.HostID] = append(leases[r.HostID], r.Ref)
	}
	done := 0
	for host, refs := range leases {
		err := d.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
			if _, err := lockOne(ctx, tx, host); err != nil {
				return err
			}
			// It may have reported while we waited for the lock.
			if out, err := tx.Q.HostOutOfReach(ctx, after, host); err != nil || !out {
				return err
			}
			done += len(refs)
			return errors.Join(
				tx.Q.EndLeaseClaims(ctx, EndAbandoned, refs, host),
				tx.Q.NeedFullReport(ctx, host))
		})
		if err != nil {
			return done, fmt.Errorf("host: abandon claims on %s: %w", host, err)
		}
	}
	return done, nil
}
