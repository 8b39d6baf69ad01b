package cluster

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/seal"
)

const (
	resealRows = 500
	// otherSecretFor is how long the other secret is needed after the last replica that seals with it has stopped: links
	// to apps, answers to repeated requests, and quotes live for at most a day, and the job checks again an hour later.
	otherSecretFor = 25 * time.Hour
)

// SealState is how far secrets at rest are sealed with the present MUSTER_SECRET.
type SealState = client.SealState

// Secrets are the secrets of clusters, sealed at rest.
type Secrets struct {
	db  *db.DB
	box *seal.Box
	log *slog.Logger
}

// Rotates reports whether a second secret is accepted besides the one that seals.
func (s *Secrets) Rotates() bool { return s.box != nil && s.box.Rotating() }

// Reseal seals the secrets of all clusters again that were sealed with another secret, and returns their number. Only
// clusters that have not ended have secrets. Call it every minute while a second secret is accepted; any number of
// replicas may do so.
func (s *Secrets) Reseal(ctx context.Context) (n int, err error) {
	var after pgtype.UUID
	remaining := int64(0)
	for {
		rows, err := s.db.Q.SealedClusters(ctx, after, resealRows)
		if err != nil {
			return n, fmt.Errorf("clusters with secrets: %w", err)
		}
		for _, r := range rows {
			fresh, stale, err := s.box.Reseal(r.Secrets, belongs(r.ID))
			if err != nil { // sealed with a third secret, or altered: its cluster cannot start anyway
				s.log.Error("a cluster's secrets do not open", "cluster", r.ID, "err", err)
				remaining++
				continue
			}
			if !stale {
				continue
			}
			did, err := s.db.Q.ResealCluster(ctx, fresh, r.ID, r.Secrets)
			if err != nil {
				return n, fmt.Errorf("seal the secrets of %s again: %w", r.ID, err)
			}
			n += int(did)
			remaining += 1 - did // it changed meanwhile: the next pass retries
		}
		if len(rows) < resealRows {
			break
		}
		after = pgtype.UUID{Bytes: rows[len(rows)-1].ID.UUID(), Valid: true}
	}
	if err := s.db.Q.PutSealProgress(ctx, s.sealMark(), int64(n), remaining); err != nil {
		return n, fmt.Errorf("progress of sealing again: %w", err)
	}
	return n, nil
}

func (s *Secrets) sealMark() []byte { return s.box.MAC([]byte("muster seal progress v1"))[:8] }

// State returns how far secrets at rest are sealed with the present secret. Only staff may call it. Fault:
// Forbidden.
func (s *Secrets) State(ctx context.Context, who account.Principal) (SealState, error) {
	if err := account.RequireStaff(who); err != nil {
		return SealState{}, err
	}
	out := SealState{Rotating: s.Rotates()}
	now, err := s.db.Q.DatabaseTime(ctx)
	if err != nil {
		return out, fmt.Errorf("seal state: %w", err)
	}
	p, err := s.db.Q.SealProgress(ctx)
	if db.NoRows(err) {
		return out, nil
	}
	if err != nil {
		return out, fmt.Errorf("seal state: %w", err)
	}
	until := p.BeganAt.Add(otherSecretFor)
	out.Resealed, out.Remaining, out.PassedAt, out.NeededTo = p.Resealed, p.Remaining, &p.PassedAt, &until
	out.Done = p.Remaining == 0 && p.PassedAt.After(until) && string(p.Mark) == string(s.sealMark()) && !now.Before(until)
	return out, nil
}
