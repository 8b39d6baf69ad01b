package api

import (
	"context"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/data/bucket"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/idem"
)

// bucketsAPI answers the routes of buckets.
type bucketsAPI struct {
	buckets *bucket.Buckets
}

func viewBucket(b bucket.Bucket) client.Bucket {
	return client.Bucket{
		ID: b.ID, Name: b.Name, Endpoint: b.Target.Endpoint, Region: b.Target.Region, Bucket: b.Target.Bucket,
		Prefix: b.Target.Prefix, Mode: b.Mode, AccessKeyID: b.AccessKeyID, CreatedAt: b.CreatedAt.UTC(),
		CheckedAt: b.CheckedAt.UTC(), Problem: b.Problem,
	}
}

func (a bucketsAPI) list(ctx context.Context, p account.Principal, _ *struct{}) (list[client.Bucket], error) {
	all, err := a.buckets.List(ctx, p.Org)
	return cut(all, len(all), viewBucket, func(b bucket.Bucket) string { return b.Name }), err
}

func (a bucketsAPI) get(ctx context.Context, p account.Principal, in *of[id.Bucket]) (client.Bucket, error) {
	out, err := a.buckets.Get(ctx, p.Org, in.ID)
	return viewBucket(out), err
}

func (a bucketsAPI) create(ctx context.Context, p account.Principal, in *create[client.NewBucket],
	once idem.Request) (client.Bucket, idem.Outcome, error) {
	b, out, err := a.buckets.Create(ctx, p, bucket.NewBucket{
		Name: in.Body.Name, Mode: in.Body.Mode,
		Target: bucket.Target{
			Endpoint: in.Body.Endpoint, Region: in.Body.Region, Bucket: in.Body.Bucket, Prefix: in.Body.Prefix,
		},
		Key: bucket.Credentials{AccessKeyID: in.Body.AccessKeyID, Secret: in.Body.SecretAccessKey},
	}, idem.As(once, viewBucket))
	return viewBucket(b), out, err
}

func (a bucketsAPI) rotate(ctx context.Context, p account.Principal,
	in *change[id.Bucket, client.BucketCredentials]) (client.Bucket, error) {
	out, err := a.buckets.Rotate(ctx, p, in.ID,
		bucket.Credentials{AccessKeyID: in.Body.AccessKeyID, Secret: in.Body.SecretAccessKey})
	return viewBucket(out), err
}

func (a bucketsAPI) check(ctx context.Context, p account.Principal, in *keyedOf[id.Bucket],
	once idem.Request) (client.Bucket, idem.Outcome, error) {
	v, out, err := a.buckets.Check(ctx, p, in.ID, idem.As(once, viewBucket))
	return viewBucket(v), out, err
}

func (a bucketsAPI) delete(ctx context.Context, p account.Principal, in *of[id.Bucket]) (nothing, error) {
	return nothing{}, a.buckets.Delete(ctx, p, in.ID)
}
