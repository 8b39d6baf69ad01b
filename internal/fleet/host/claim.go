package host

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/musterhq/muster/internal/bus"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/metrics"
)

// ClaimKind is the purpose of a claim.
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
	EndReturned  = "returned"  // the quote was cancelled
	EndExpired   = "expired"   // the quote expired
	EndReleased  = "released"  // the host no longer reports the ended lease
	EndAbandoned = "abandoned" // the host was unreachable for AbandonAfter
)

// GPURef is a GPU together with its host.
type GPURef struct {
	Host id.Host
	GPU  id.GPU
}

// ErrTaken means that a GPU is claimed, quarantined, in use by its owner or gone. The caller should roll the
// transaction back and plan again.
var ErrTaken = fault.New(fault.NoCapacity, "Another renter has taken a GPU in the meantime.")

// ClaimSet is the GPUs to claim for one ref: the id of a quote, a lease or a host.
type ClaimSet struct {
	Ref  uuid.UUID
	GPUs []GPURef
	// Fabric is claimed too, for Tenant; zero: none is. A fabric has one tenant at a time, unless all its hosts put their
	// ports into partitions; then Cluster gets one. The claim ends with the last of the GPUs'.
	Fabric  id.Fabric
	Tenant  id.Org
	Cluster uuid.UUID // zero: a quote's
}

// ClaimAll claims the GPUs of all sets, or returns ErrTaken. The caller must have locked the GPUs' hosts. Only quotes
// set expires; an expired quote's claim does not prevent a new claim.
func ClaimAll(ctx context.Context, tx *db.Tx, kind ClaimKind, takings []ClaimSet, expires *time.Time) error {
	p := claimsOf(kind, takings, expires)
	if f := fabricsOf(takings); len(f.Refs) > 0 {
		switch err := tx.Q.ClaimFabrics(ctx, f); {
		case IsTaken(err):
			return ErrTaken
		case err != nil:
			return fmt.Errorf("claim fabrics: %w", err)
		}
	}
	taken, err := insertClaims(ctx, tx, p)
	if err != nil {
		return err
	}
	if int(taken) == len(p.Gpus) {
		metrics.Claim(string(kind), false)
		return nil
	}
	// Some GPUs have claims. End those of expired quotes and try again.
	if err := tx.Q.ExpireClaimsOn(ctx, p.Gpus); err != nil {
		return fmt.Errorf("expire claims: %w", err)
	}
	more, err := insertClaims(ctx, tx, p)
	if err != nil {
		return err
	}
	metrics.Claim(string(kind), int(taken+more) != len(p.Gpus))
	if int(taken+more) != len(p.Gpus) {
		return ErrTaken
	}
	return nil
}

// insertClaims inserts the claims of those GPUs that have none, and returns how many those are. If a GPU and a slice of
// it would both be claimed, it returns ErrTaken, and the transaction has failed.
func insertClaims(ctx context.Context, tx *db.Tx, p dbq.InsertClaimsParams) (int64, error) {
	n, err := tx.Q.InsertClaims(ctx, p)
	switch {
	case IsTaken(err):
		metrics.Claim(p.Kind, true)
		return 0, ErrTaken
	case err != nil:
		return 0, fmt.Errorf("claim: %w", err)
	}
	return n, nil
}

// QueueLeaseClaims queues the claims of new leases on GPUs that the caller has found free while holding the locks of
// their hosts, and raises the revisions of these hosts, which it wakes after the commit; the batch is sent in tx.
// lapsed means that the GPUs may still have claims of expired quotes, which are ended first. If a GPU turns out not to
// be free, the batch fails with an error for which IsTaken returns true.
func QueueLeaseClaims(b *pgx.Batch, tx *db.Tx, events *bus.Bus, sets []ClaimSet, lapsed bool) {
	rows := claimsOf(ForLease, sets, nil)
	if lapsed {
		db.Write(b, (*dbq.Queries).ExpireClaimsOn, rows.Gpus)
	}
	if f := fabricsOf(sets); len(f.Refs) > 0 {
		db.Queue(b, func(ctx context.Context, q *dbq.Queries) error {
			return q.ClaimFabrics(ctx, f)
		})
	}
	var raised []dbq.ClaimForLeasesRow
	db.Queue(b, func(ctx context.Context, q *dbq.Queries) (err error) {
		raised, err = q.ClaimForLeases(ctx, dbq.ClaimForLeasesParams{
			Ids: rows.Ids, Gpus: rows.Gpus, Hosts: rows.Hosts, Refs: rows.Refs,
		})
		if err == nil || IsTaken(err) {
			metrics.Claim(string(ForLease), err != nil)
		}
		return err
	})
	tx.AfterCommit(func() {
		for _, r := range raised {
			events.Wake(r.ID, r.Revision)
		}
	})
}

// IsTaken reports whether err means that a GPU is not free: it is ErrTaken, or the error of a batch
// with QueueLeaseClaims.
func IsTaken(err error) bool {
	var pe *pgconn.PgError
	return errors.Is(err, ErrTaken) || db.IsUnique(err, "gpu_claim_active") ||
		db.IsUnique(err, "gpu_claim_family") || db.IsUnique(err, "fabric_claim_sole") ||
		errors.As(err, &pe) && pe.Code == "23502" && pe.TableName == "gpu_claim"
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

// fabricsOf returns the rows of fabrics to claim, one for each ref.
func fabricsOf(sets []ClaimSet) (out dbq.ClaimFabricsParams) {
	seen := map[uuid.UUID]bool{}
	for _, s := range sets {
		if s.Fabric.IsZero() || seen[s.Ref] {
			continue
		}
		seen[s.Ref] = true
		out.Refs = append(out.Refs, pgtype.UUID{Bytes: s.Ref, Valid: true})
		out.Fabrics = append(out.Fabrics, pgtype.UUID{Bytes: s.Fabric.UUID(), Valid: true})
		out.Orgs = append(out.Orgs, pgtype.UUID{Bytes: s.Tenant.UUID(), Valid: true})
		out.Clusters = append(out.Clusters, pgtype.UUID{Bytes: s.Cluster, Valid: s.Cluster != uuid.Nil})
	}
	return out
}

// EndClaims ends the claims of ref. The caller must have locked the hosts, unless ref is a quote. It is no error if ref
// has no claims.
func EndClaims(ctx context.Context, tx *db.Tx, ref uuid.UUID, reason string) error {
	if err := tx.Q.EndClaims(ctx, reason, pgtype.UUID{Bytes: ref, Valid: true}); err != nil {
		return fmt.Errorf("end claims of %s: %w", ref, err)
	}
	return nil
}

// QueueEndClaims queues the statement of EndClaims.
func QueueEndClaims(b *pgx.Batch, ref uuid.UUID, reason string) {
	db.Queue(b, func(ctx context.Context, q *dbq.Queries) error {
		return q.EndClaims(ctx, reason, pgtype.UUID{Bytes: ref, Valid: true})
	})
}

// ExpireClaims ends at most limit claims of expired quotes and returns how many it ended. It skips locked rows, so it
// never waits.
func ExpireClaims(ctx context.Context, d *db.DB, limit int) (int, error) {
	n, err := d.Q.ExpireClaims(ctx, int32(limit))
	if err != nil {
		return 0, fmt.Errorf("expire claims: %w", err)
	}
	return int(n), nil
}

// AbandonClaims ends the claims of ended leases on hosts that have been unreachable for AbandonAfter. Such a host sells
// nothing until a full report shows that it runs no ended lease. Leases that have not ended keep their claims: package
// cluster must end the lease first. AbandonClaims returns the number of leases whose claims it ended.
func AbandonClaims(ctx context.Context, d *db.DB) (int, error) {
	after := AbandonAfter.Milliseconds()
	rows, err := d.Q.AbandonedLeases(ctx, after)
	if err != nil {
		return 0, fmt.Errorf("find abandoned claims: %w", err)
	}
	leases := map[id.Host][]pgtype.UUID{}
	for _, r := range rows {
		leases[r.HostID] = append(leases[r.HostID], r.Ref)
	}
	done := 0
	for host, refs := range leases {
		ended := 0
		err := d.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
			ended = 0
			if _, err := lockOne(ctx, tx, host); err != nil {
				return err
			}
			// The host may have reported while this transaction waited for the lock.
			if out, err := tx.Q.HostOutOfReach(ctx, after, host); err != nil || !out {
				return err
			}
			ended = len(refs)
			return errors.Join(
				tx.Q.EndLeaseClaims(ctx, EndAbandoned, refs, host),
				tx.Q.NeedFullReport(ctx, host))
		})
		if err != nil {
			return done, fmt.Errorf("abandon claims on %s: %w", host, err)
		}
		done += ended
	}
	return done, nil
}
