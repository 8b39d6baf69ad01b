package sharedfs

import (
	"context"

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
	names := make([]string, len(mounts))
	for i, m := range mounts {
		names[i] = m.Name
	}
	db.Queue(b, func(ctx context.Context, q *dbq.Queries) error {
		rows, err := q.LockSharedByName(ctx, names)
		for _, r := range rows {
			c.have[r.Name] = r.ID
		}
		return err
	})
	return c
}

// Decide refuses file systems that are not declared. Fault: Invalid, with the field.
func (c *Claims) Decide() error {
	var bad fault.Fields
	for _, m := range c.mounts {
		if _, ok := c.have[m.Name]; !ok {
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
