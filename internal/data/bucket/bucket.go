// Package bucket registers renters' own buckets in S3-compatible stores, with their credentials.
//
// What is in a bucket belongs to its renter and is never stored or billed here. This package knows where the bucket is
// and has the credentials for it.
//
// What always holds:
//   - The secret access key is stored sealed. It leaves this package for the check of a bucket, and for the hosts that
//     mount it (OpenSecret). No answer, log or audit event has it.
//   - A bucket is not deleted while a cluster mounts it.
//   - Credentials are stored only after the store has accepted them.
//   - The store is asked outside of transactions, and only at addresses on the internet: Package publicnet decides at
//     each connection. Redirects are not followed, and nothing that a store sends is shown but the code of its error.
package bucket

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/audit"
	"github.com/musterhq/muster/internal/bus"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/idem"
	"github.com/musterhq/muster/internal/seal"
)

// MaxPerOrg is how many buckets an organisation may have.
const MaxPerOrg = 50

// How a bucket may be mounted.
const (
	ReadWrite = "rw"
	ReadOnly  = "ro"
)

// Config is the settings of buckets.
type Config struct {
	Box *seal.Box
	// AnyAddress also accepts http, and addresses that are not on the internet: for a platform of its owner's own users.
	AnyAddress bool
	Bus        *bus.Bus // nil: hosts are not woken
	Log        *slog.Logger
}

// Buckets are the use cases of buckets. Safe for concurrent use.
type Buckets struct {
	d      *db.DB
	cfg    Config
	checks chan struct{} // one for each check that is under way
}

// New returns the use cases on d.
func New(d *db.DB, cfg Config) *Buckets {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	return &Buckets{d: d, cfg: cfg, checks: make(chan struct{}, maxChecks)}
}

// Bucket is a bucket as its renter sees it.
type Bucket struct {
	ID          id.Bucket
	Name        string // that the organisation gave it
	Target      Target
	Mode        string // ReadWrite or ReadOnly: what its credentials are for
	AccessKeyID string
	CreatedAt   time.Time
	CheckedAt   time.Time
	Problem     string // that the last check found; empty: none
}

// Target is where a bucket is.
type Target struct {
	Endpoint string // https://host[:port]
	Region   string
	Bucket   string // its name in the store
	Prefix   string // of all keys, without slashes at its ends; may be empty
}

// Credentials are an access key. The secret is never shown.
type Credentials struct {
	AccessKeyID string
	Secret      string
}

// NewBucket is what to create.
type NewBucket struct {
	Name   string
	Target Target
	Mode   string // empty: ReadWrite
	Key    Credentials
}

// errNone is the fault for a bucket that does not exist or is another organisation's.
var errNone = fault.New(fault.NotFound, "bucket not found")

// Create adds a bucket, after the store has accepted its credentials. Faults: Invalid, with the field that is wrong,
// Conflict if the name is used, QuotaExceeded, Unavailable.
func (b *Buckets) Create(ctx context.Context, who account.Principal, n NewBucket, once idem.Request) (Bucket,
	idem.Outcome, error) {
	before := func(ctx context.Context) error {
		if err := n.check(b.cfg.AnyAddress); err != nil {
			return err
		}
		return b.try(ctx, n.Target, n.Mode, n.Key)
	}
	return idem.OnceAfter(ctx, b.d, once, before, func(ctx context.Context, tx *db.Tx) (Bucket, error) {
		row, err := b.insert(ctx, tx, who, n)
		if err != nil {
			return Bucket{}, err
		}
		return of(row), audit.Record(ctx, tx, who.Event("bucket.create", row.ID.String(), map[string]any{
			"name": n.Name, "endpoint": n.Target.Endpoint, "bucket": n.Target.Bucket, "mode": n.Mode,
		}))
	})
}

func (b *Buckets) insert(ctx context.Context, tx *db.Tx, who account.Principal, n NewBucket) (dbq.Bucket, error) {
	if err := tx.Q.LockBucketsOfOrg(ctx, who.Org.String()); err != nil {
		return dbq.Bucket{}, fmt.Errorf("lock buckets of %s: %w", who.Org, err)
	}
	have, err := tx.Q.CountBuckets(ctx, who.Org)
	if err != nil {
		return dbq.Bucket{}, fmt.Errorf("count buckets of %s: %w", who.Org, err)
	}
	if have >= MaxPerOrg {
		return dbq.Bucket{}, fault.New(fault.QuotaExceeded, "your organisation has %d buckets; delete one first", have)
	}
	made := id.New[id.Bucket]()
	rows, err := tx.Q.InsertBucket(ctx, dbq.InsertBucketParams{
		ID: made, OrgID: who.Org, Name: n.Name, Endpoint: n.Target.Endpoint, Region: n.Target.Region,
		Bucket: n.Target.Bucket, Prefix: n.Target.Prefix, Mode: n.Mode, AccessKeyID: n.Key.AccessKeyID,
		Secret: b.cfg.Box.Seal([]byte(n.Key.Secret), belongs(made)), CreatedBy: who.User,
	})
	if err != nil {
		return dbq.Bucket{}, fmt.Errorf("create a bucket of %s: %w", who.Org, err)
	}
	if len(rows) == 0 {
		return dbq.Bucket{}, fault.New(fault.Conflict, "there is a bucket %q already: choose another name", n.Name)
	}
	return rows[0], nil
}

// belongs binds a sealed secret to its bucket.
func belongs(b id.Bucket) string { return "bucket:" + b.String() }

func of(r dbq.Bucket) Bucket {
	return Bucket{
		ID: r.ID, Name: r.Name, Mode: r.Mode, AccessKeyID: r.AccessKeyID, CreatedAt: r.CreatedAt, CheckedAt: r.CheckedAt,
		Problem: r.Problem, Target: targetOf(r),
	}
}

func targetOf(r dbq.Bucket) Target {
	return Target{Endpoint: r.Endpoint, Region: r.Region, Bucket: r.Bucket, Prefix: r.Prefix}
}

// List returns the organisation's buckets by name.
func (b *Buckets) List(ctx context.Context, org id.Org) ([]Bucket, error) {
	rows, err := b.d.Q.ListBuckets(ctx, org)
	if err != nil {
		return nil, fmt.Errorf("list buckets of %s: %w", org, err)
	}
	out := make([]Bucket, len(rows))
	for i, r := range rows {
		out[i] = of(r)
	}
	return out, nil
}

// Get returns a bucket of the organisation. Fault: NotFound.
func (b *Buckets) Get(ctx context.Context, org id.Org, bkt id.Bucket) (Bucket, error) {
	r, err := b.row(ctx, org, bkt)
	return of(r), err
}

func (b *Buckets) row(ctx context.Context, org id.Org, bkt id.Bucket) (dbq.Bucket, error) {
	r, err := b.d.Q.GetBucket(ctx, bkt, org)
	switch {
	case db.NoRows(err):
		return dbq.Bucket{}, errNone
	case err != nil:
		return dbq.Bucket{}, fmt.Errorf("get %s: %w", bkt, err)
	}
	return r, nil
}

// Rotate replaces a bucket's credentials, after the store has accepted the new ones. Hosts on which it is mounted mount
// it again with the new ones. Faults: NotFound, Invalid,
// Unavailable.
func (b *Buckets) Rotate(ctx context.Context, who account.Principal, bkt id.Bucket, key Credentials) (Bucket, error) {
	r, err := b.row(ctx, who.Org, bkt)
	if err != nil {
		return Bucket{}, err
	}
	var bad fault.Fields
	key.check(&bad)
	if err := bad.Err(); err != nil {
		return Bucket{}, err
	}
	if err := b.try(ctx, targetOf(r), r.Mode, key); err != nil {
		return Bucket{}, err
	}
	err = b.d.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		r, err = tx.Q.SetBucketCredentials(ctx, dbq.SetBucketCredentialsParams{
			ID: bkt, OrgID: who.Org, AccessKeyID: key.AccessKeyID, Secret: b.cfg.Box.Seal([]byte(key.Secret), belongs(bkt)),
		})
		switch {
		case db.NoRows(err): // deleted meanwhile
			return errNone
		case err != nil:
			return fmt.Errorf("replace the credentials of %s: %w", bkt, err)
		}
		return audit.Record(ctx, tx, who.Event("bucket.rotate", bkt.String(), nil))
	})
	if err != nil {
		return of(r), err
	}
	return of(r), b.wake(ctx, bkt)
}

// Check asks the store of a bucket whether it can still be used, and stores and returns what is wrong in
// Bucket.Problem. Faults: NotFound, Unavailable.
func (b *Buckets) Check(ctx context.Context, who account.Principal, bkt id.Bucket, once idem.Request) (Bucket,
	idem.Outcome, error) {
	var r dbq.Bucket
	var problem string
	before := func(ctx context.Context) (err error) {
		if r, err = b.row(ctx, who.Org, bkt); err != nil {
			return err
		}
		problem, err = b.examine(ctx, r)
		return err
	}
	return idem.OnceAfter(ctx, b.d, once, before, func(ctx context.Context, tx *db.Tx) (Bucket, error) {
		now, err := tx.Q.SetBucketChecked(ctx, dbq.SetBucketCheckedParams{
			ID: bkt, OrgID: who.Org, Secret: r.Secret, Problem: problem,
		})
		if db.NoRows(err) { // deleted, or its credentials replaced, while the store was asked
			return Bucket{}, fault.New(fault.Conflict, "the bucket was changed meanwhile: check it again")
		}
		if err != nil {
			return Bucket{}, fmt.Errorf("record the check of %s: %w", bkt, err)
		}
		return of(now), audit.Record(ctx, tx, who.Event("bucket.check", bkt.String(), nil))
	})
}

// examine returns what is wrong with a bucket, in words.
func (b *Buckets) examine(ctx context.Context, r dbq.Bucket) (problem string, err error) {
	secret, err := b.cfg.Box.Open(r.Secret, belongs(r.ID))
	if err != nil {
		b.cfg.Log.ErrorContext(ctx, "the secret of a bucket cannot be opened", "bucket", r.ID, "err", err)
		return "its secret access key cannot be read any more: replace the credentials", nil
	}
	err = b.try(ctx, targetOf(r), r.Mode, Credentials{r.AccessKeyID, string(secret)})
	if f := fault.From(err); f != nil && f.Kind == fault.Invalid {
		return f.Message, nil
	}
	return "", err
}

// RotatesSecret reports whether secrets have to be sealed again, because the platform's secret was replaced.
func (b *Buckets) RotatesSecret() bool { return b.cfg.Box != nil && b.cfg.Box.Rotating() }

// Reseal seals again what the platform's previous secret sealed, and returns how many secrets that were.
func (b *Buckets) Reseal(ctx context.Context) (n int, err error) {
	return seal.ResealAll(ctx, b.cfg.Box, id.First[id.Bucket](), b.d.Q.ResealableBuckets,
		func(r dbq.ResealableBucketsRow) (id.Bucket, []byte, string) { return r.ID, r.Secret, belongs(r.ID) },
		b.d.Q.ResealBucket)
}
