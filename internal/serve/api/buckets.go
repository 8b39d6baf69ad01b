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

func (a bucketsAPI) get(ctx context.Context, p account.Principal, in *idInput) (client.Bucket, error) {
	b, err := pathID[id.Bucket](in.ID, "bucket")
	if err != nil {
		return client.Bucket{}, err
	}
	out, err := a.buckets.Get(ctx, p.Org, b)
	return viewBucket(out), err
}

type newBucketInput struct {
	Keyed
	Body client.NewBucket
}

func (a bucketsAPI) create(ctx context.Context, p account.Principal, in *newBucketInput,
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

type bucketCredentialsInput struct {
	ID   string `path:"id"`
	Body client.BucketCredentials
}

func (a bucketsAPI) rotate(ctx context.Context, p account.Principal, in *bucketCredentialsInput) (client.Bucket,
	error) {
	b, err := pathID[id.Bucket](in.ID, "bucket")
	if err != nil {
		return client.Bucket{}, err
	}
	out, err := a.buckets.Rotate(ctx, p, b,
		bucket.Credentials{AccessKeyID: in.Body.AccessKeyID, Secret: in.Body.SecretAccessKey})
	return viewBucket(out), err
}

func (a bucketsAPI) check(ctx context.Context, p account.Principal, in *keyedIDInput,
	once idem.Request) (client.Bucket, idem.Outcome, error) {
	b, err := pathID[id.Bucket](in.ID, "bucket")
	if err != nil {
		return client.Bucket{}, idem.Outcome{}, err
	}
	v, out, err := a.buckets.Check(ctx, p, b, idem.As(once, viewBucket))
	return viewBucket(v), out, err
}

func (a bucketsAPI) delete(ctx context.Context, p account.Principal, in *idInput) (nothing, error) {
	b, err := pathID[id.Bucket](in.ID, "bucket")
	if err != nil {
		return nothing{}, err
	}
	return nothing{}, a.buckets.Delete(ctx, p, b)
}
