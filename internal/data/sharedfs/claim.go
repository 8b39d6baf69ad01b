package sharedfs

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
)

// Mount is a file system that a cluster is to have.
type Mount struct {
	Name string
	Mode string // agentapi.MountRW, agentapi.MountRO
	At   string // the mount that names it, for messages: "mounts[0]"
}

// Claims are the file systems of a rent, which are not withdrawn until it commits.
type Claims struct {
	org    id.Org
	mounts []Mount
	have   map[string]id.SharedFS
}

// QueueClaims queues the locks of the file systems of a rent. Their place in the order of locks is after buckets.
func QueueClaims(b *pgx.Batch, org id.Org, mounts []Mount) *Claims {
	c := &Claims{org: org, mounts: mounts, have: map[string]id.SharedFS{}}
	if len(mounts) == 0 {
		return c
	}
	db.Queue(b, func(ctx context.Context, q *dbq.Queries) error {
		rows, err := q.LockSharedByName(ctx, namesOf(mounts))
		for _, r := range rows {
			c.have[r.Name] = r.ID
		}
		return err
	})
	return c
}

func namesOf(mounts []Mount) []string {
	names := make([]string, len(mounts))
	for i, m := range mounts {
		names[i] = m.Name
	}
	return names
}

// Decide refuses file systems that are not declared. Fault: Invalid, with the field.
func (c *Claims) Decide() error { return declared(c.have, c.mounts) }

// Check is Decide without locks, for a quote. Call it outside of transactions.
func Check(ctx context.Context, q *dbq.Queries, mounts []Mount) error {
	if len(mounts) == 0 {
		return nil
	}
	rows, err := q.SharedByName(ctx, namesOf(mounts))
	if err != nil {
		return fmt.Errorf("read shared file systems: %w", err)
	}
	have := map[string]id.SharedFS{}
	for _, r := range rows {
		have[r.Name] = r.ID
	}
	return declared(have, mounts)
}

func declared(have map[string]id.SharedFS, mounts []Mount) error {
	var bad fault.Fields
	for _, m := range mounts {
		if _, ok := have[m.Name]; !ok {
			bad.Add(m.At+".shared", "no shared file system is called %s", m.Name)
		}
	}
	return bad.Err()
}

// QueueWrite queues the writes of the claims of a cluster, which exists. The organisation gets its folder with the
// first.
func (c *Claims) QueueWrite(b *pgx.Batch, cluster id.Cluster) {
	for _, m := range c.mounts {
		db.Queue(b, func(ctx context.Context, q *dbq.Queries) error {
			return q.InsertSharedMount(ctx, dbq.InsertSharedMountParams{
				ClusterID: cluster, Mode: m.Mode, FreshID: id.New[id.SharedData](), SharedID: c.have[m.Name], OrgID: c.org,
			})
		})
	}
}
