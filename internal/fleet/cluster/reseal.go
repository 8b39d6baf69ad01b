package cluster

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/db"
)

const (
	resealRows = 500
	// otherSecretFor is how long the other secret is needed after the last replica seals with this one: links to apps,
	// answers to repeated requests and quotes live a day at most, and the job looks again an hour later.
	otherSecretFor = 25 * time.Hour
)

// SealState says how far secrets at rest are sealed with the present MUSTER_SECRET.
type SealState struct {
	Rotating  bool       `json:"rotating" doc:"the server that answers accepts MUSTER_SECRET_PREVIOUS, too"`
	Resealed  int64      `json:"resealed" doc:"clusters whose secrets were sealed again since the change"`
	Remaining int64      `json:"remaining" doc:"clusters whose secrets the other secret seals, after the last pass"`
	PassedAt  *time.Time `json:"passed_at,omitempty" doc:"when all were last looked at"`
	NeededTo  *time.Time `json:"needed_to,omitempty" doc:"until when the other secret is needed, if none remain: answers and links that it made live a day"`
	Done      bool       `json:"done" doc:"MUSTER_SECRET_PREVIOUS is not needed any more"`
}

// RotatesSecret reports whether another secret than the one that seals is accepted.
func (c *Clusters) RotatesSecret() bool { return c.cfg.Box != nil && c.cfg.Box.Rotating() }

// Reseal seals the secrets of all clusters again that another secret has sealed, and returns of how many. Only clusters
// that have not ended have secrets. Run it every minute while another secret is accepted; any number of replicas may.
func (c *Clusters) Reseal(ctx context.Context) (n int, err error) {
	var after pgtype.UUID
	remaining := int64(0)
	for {
		rows, err := c.db.Q.SealedClusters(ctx, after, resealRows)
		if err != nil {
			return n, fmt.Errorf("clusters with secrets: %w", err)
		}
		for _, r := range rows {
			fresh, stale, err := c.cfg.Box.Reseal(r.Secrets, belongs(r.ID))
			if err != nil { // a third secret, or altered: its cluster cannot start anyway
				c.log.Error("a cluster's secrets do not open", "cluster", r.ID, "err", err)
				remaining++
				continue
			}
			if !stale {
				continue
			}
			did, err := c.db.Q.ResealCluster(ctx, fresh, r.ID, r.Secrets)
			if err != nil {
				return n, fmt.Errorf("seal the secrets of %s again: %w", r.ID, err)
			}
			n += int(did)
			remaining += 1 - did // it changed meanwhile: the next pass looks again
		}
		if len(rows) < resealRows {
			break
		}
		after = pgtype.UUID{Bytes: rows[len(rows)-1].ID.UUID(), Valid: true}
	}
	if err := c.db.Q.PutSealProgress(ctx, c.sealMark(), int64(n), remaining); err != nil {
		return n, fmt.Errorf("progress of sealing again: %w", err)
	}
	return n, nil
}

func (c *Clusters) sealMark() []byte { return c.cfg.Box.MAC([]byte("muster seal progress v1"))[:8] }

// SealState says how far secrets at rest are sealed with the present secret. Only a platform operator sees it; fault:
// Forbidden.
func (c *Clusters) SealState(ctx context.Context, who account.Principal) (SealState, error) {
	if err := account.RequireStaff(who); err != nil {
		return SealState{}, err
	}
	out := SealState{Rotating: c.RotatesSecret()}
	now, err := c.db.Q.DatabaseTime(ctx)
	if err != nil {
		return out, fmt.Errorf("seal state: %w", err)
	}
	p, err := c.db.Q.SealProgress(ctx)
	if db.NoRows(err) {
		return out, nil
	}
	if err != nil {
		return out, fmt.Errorf("seal state: %w", err)
	}
	until := p.BeganAt.Add(otherSecretFor)
	out.Resealed, out.Remaining, out.PassedAt, out.NeededTo = p.Resealed, p.Remaining, &p.PassedAt, &until
	out.Done = p.Remaining == 0 && p.PassedAt.After(until) && string(p.Mark) == string(c.sealMark()) && !now.Before(until)
	return out, nil
}
