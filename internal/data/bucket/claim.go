package bucket

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/audit"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/fleet/host"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/seal"
)

// Mount is a bucket that a cluster is to have.
type Mount struct {
	Bucket id.Bucket
	Mode   string // ReadWrite or ReadOnly
	At     string // the mount that names it, for messages: "mounts[0]"
}

// Claims are the buckets of a rent, which are not deleted until it commits.
type Claims struct {
	org    id.Org
	mounts []Mount
	have   registered
}

// registered are buckets that an organisation has.
type registered map[id.Bucket]dbq.BucketsByIDRow

// QueueClaims queues the locks of the buckets of a rent. Their place in the order of locks is after volumes and before
// the ledger's accounts.
func QueueClaims(b *pgx.Batch, org id.Org, mounts []Mount) *Claims {
	c := &Claims{org: org, mounts: mounts, have: registered{}}
	if len(mounts) == 0 {
		return c
	}
	ids := idsOf(mounts)
	db.Queue(b, func(ctx context.Context, q *dbq.Queries) error {
		rows, err := q.LockBuckets(ctx, ids, org)
		for _, r := range rows {
			c.have[r.ID] = dbq.BucketsByIDRow(r)
		}
		return err
	})
	return c
}

func idsOf(mounts []Mount) []pgtype.UUID {
	ids := make([]id.Bucket, len(mounts))
	for i, m := range mounts {
		ids[i] = m.Bucket
	}
	return id.UUIDs(ids...)
}

// Decide refuses buckets that the organisation does not have, and writers of those that are registered for reading.
// Fault: Invalid, with the field.
func (c *Claims) Decide() error { return c.have.allow(c.mounts) }

// Check is Decide without locks, for a quote. Call it outside of transactions.
func Check(ctx context.Context, q *dbq.Queries, org id.Org, mounts []Mount) error {
	if len(mounts) == 0 {
		return nil
	}
	rows, err := q.BucketsByID(ctx, idsOf(mounts), org)
	if err != nil {
		return fmt.Errorf("read buckets of %s: %w", org, err)
	}
	have := registered{}
	for _, r := range rows {
		have[r.ID] = r
	}
	return have.allow(mounts)
}

func (have registered) allow(mounts []Mount) error {
	var bad fault.Fields
	for _, m := range mounts {
		b, ok := have[m.Bucket]
		switch {
		case !ok:
			bad.Add(m.At+".bucket", "bucket %s not found", m.Bucket)
		case m.Mode == ReadWrite && b.Mode == ReadOnly:
			bad.Add(m.At+".mode", "the bucket %s is registered for reading only: want ro", b.Name)
		}
	}
	return bad.Err()
}

// QueueWrite queues the writes of the claims of a cluster, which exists.
func (c *Claims) QueueWrite(b *pgx.Batch, cluster id.Cluster) {
	for _, m := range c.mounts {
		db.Queue(b, func(ctx context.Context, q *dbq.Queries) error {
			return q.InsertBucketMount(ctx, cluster, m.Bucket, m.Mode)
		})
	}
}

// OpenSecret decrypts the secret of a bucket's access key, for the hosts that mount it.
func OpenSecret(box *seal.Box, bkt id.Bucket, sealed []byte) (string, error) {
	b, err := box.Open(sealed, belongs(bkt))
	return string(b), err
}

// User is a cluster that mounts a bucket.
type User struct {
	Cluster id.Cluster
	Name    string
	Mode    string
}

// Users returns the clusters of an organisation that have not ended and mount buckets, by bucket.
func (b *Buckets) Users(ctx context.Context, org id.Org) (map[id.Bucket][]User, error) {
	rows, err := b.d.Q.ClustersOfBuckets(ctx, org)
	if err != nil {
		return nil, fmt.Errorf("list clusters that mount buckets of %s: %w", org, err)
	}
	out := map[id.Bucket][]User{}
	for _, r := range rows {
		out[r.BucketID] = append(out[r.BucketID], User{r.ClusterID, r.Name, r.Mode})
	}
	return out, nil
}

// Delete deletes a bucket and its credentials. What the store has stays there. Faults: NotFound; Conflict while a
// cluster mounts it.
func (b *Buckets) Delete(ctx context.Context, who account.Principal, bkt id.Bucket) error {
	return b.d.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		_, err := tx.Q.LockBucket(ctx, bkt, who.Org) // no cluster is rented with it from here on
		switch {
		case db.NoRows(err):
			return errNone
		case err != nil:
			return fmt.Errorf("lock %s: %w", bkt, err)
		}
		users, err := tx.Q.ClustersOfBuckets(ctx, who.Org)
		if err != nil {
			return fmt.Errorf("list clusters that mount %s: %w", bkt, err)
		}
		for _, u := range users {
			if u.BucketID == bkt {
				return fault.New(fault.Conflict, "the cluster %s mounts the bucket: release it first", u.Name)
			}
		}
		if _, err := tx.Q.DeleteBucket(ctx, bkt, who.Org); err != nil {
			return fmt.Errorf("delete %s: %w", bkt, err)
		}
		return audit.Record(ctx, tx, who.Event("bucket.delete", bkt.String(), nil))
	})
}

// wake sends the new credentials of a bucket to the hosts that mount it. Hosts are locked before buckets, so it has a
// transaction of its own.
func (b *Buckets) wake(ctx context.Context, bkt id.Bucket) error {
	hosts, err := b.d.Q.HostsOfBucket(ctx, bkt)
	if err != nil {
		return fmt.Errorf("hosts of %s: %w", bkt, err)
	}
	return host.Wake(ctx, b.d, b.cfg.Bus, hosts)
}
