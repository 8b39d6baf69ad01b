package volumes

import (
	"strings"
	"time"

	"github.com/go-chi/chi/v5"

	"github.com/musterhq/muster/internal/data/bucket"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/web/page"
	"github.com/musterhq/muster/web/view"
)

func (s *Pages) bucketRoutes(m page.Mux) {
	m.Get("/buckets", page.ReadClusters, s.buckets)
	m.Post("/buckets", page.WriteClusters, s.createBucket)
	m.Get("/buckets/{id}", page.ReadClusters, s.bucket)
	m.Post("/buckets/{id}/check", page.WriteClusters, s.checkBucket)
	m.Post("/buckets/{id}/credentials", page.WriteClusters, s.rotateBucket)
	m.Post("/buckets/{id}/delete", page.WriteClusters, s.deleteBucket)
}

func (s *Pages) buckets(v *page.Visit) error { return s.showBuckets(v, BucketForm{}) }

func (s *Pages) showBuckets(v *page.Visit, f BucketForm) error {
	all, err := s.Buckets.List(v.R.Context(), v.Who.Org)
	if err != nil {
		return err
	}
	f.Once = page.NewOnce()
	l := BucketList{MayWrite: mayWrite(v), Form: f}
	for _, b := range all {
		l.Rows = append(l.Rows, s.bucketRow(b))
	}
	return s.Render(v, BucketsPage(v.Page("Buckets", "data"), l))
}

func (s *Pages) bucketRow(b bucket.Bucket) BucketRow {
	r := BucketRow{
		ID: b.ID.String(), Name: b.Name, Endpoint: b.Target.Endpoint, Within: b.Target.Bucket,
		Mode:  map[string]string{bucket.ReadWrite: "reading and writing", bucket.ReadOnly: "reading"}[b.Mode],
		State: view.State{Word: "Works", Icon: "check", Tone: "ok"}, Problem: b.Problem,
		Checked: view.Clock(b.CheckedAt, s.Now()),
	}
	if b.Target.Prefix != "" {
		r.Within += "/" + b.Target.Prefix
	}
	if b.Problem != "" {
		r.State = view.State{Word: "Does not work", Icon: "error", Tone: "bad"}
	}
	return r
}

func (s *Pages) createBucket(v *page.Visit) error {
	value := func(name string) string { return strings.TrimSpace(v.R.PostFormValue(name)) }
	f := BucketForm{Name: value("name"), Endpoint: value("endpoint"), Region: value("region"), Bucket: value("bucket"),
		Prefix: value("prefix"), Mode: value("mode"), AccessKeyID: value("access_key_id")}
	// The secret is not a field of the idempotency key: those are hashed without a secret key.
	made, _, err := s.Buckets.Create(v.R.Context(), v.Who, bucket.NewBucket{
		Name: f.Name, Mode: f.Mode,
		Target: bucket.Target{Endpoint: f.Endpoint, Region: f.Region, Bucket: f.Bucket, Prefix: f.Prefix},
		Key:    bucket.Credentials{AccessKeyID: f.AccessKeyID, Secret: value("secret_access_key")},
	}, v.Once("name", "endpoint", "region", "bucket", "prefix", "mode", "access_key_id"))
	if err != nil {
		return s.Again(v, err, func(errs map[string]string) error {
			f.Errors = errs
			return s.showBuckets(v, f)
		})
	}
	return page.Back(v, "/buckets/"+made.ID.String())
}

func bucketOf(v *page.Visit) (id.Bucket, error) {
	b, err := id.Parse[id.Bucket](chi.URLParam(v.R, "id"))
	if err != nil {
		return b, fault.New(fault.NotFound, "bucket not found")
	}
	return b, nil
}

func (s *Pages) bucket(v *page.Visit) error {
	b, err := bucketOf(v)
	if err != nil {
		return err
	}
	return s.showBucket(v, b, BucketForm{})
}

// showBucket renders one bucket; f has what was typed to replace its credentials, and what was wrong.
func (s *Pages) showBucket(v *page.Visit, bkt id.Bucket, f BucketForm) error {
	b, err := s.Buckets.Get(v.R.Context(), v.Who.Org, bkt)
	if err != nil {
		return err
	}
	d := BucketDetail{BucketRow: s.bucketRow(b), MayWrite: mayWrite(v), Form: f, Facts: []Fact{
		{"Id", b.ID.String()}, {"Store", b.Target.Endpoint}, {"Region", b.Target.Region}, {"Bucket", b.Target.Bucket},
		{"Prefix", b.Target.Prefix}, {"Access key", b.AccessKeyID},
		{"Added", b.CreatedAt.UTC().Format(time.DateTime)},
	}}
	users, err := s.Buckets.Users(v.R.Context(), v.Who.Org)
	if err != nil {
		return err
	}
	for _, u := range users[bkt] {
		d.Users = append(d.Users, BucketUser{u.Cluster.String(), u.Name, u.Mode})
	}
	return s.Render(v, BucketPage(v.Page(b.Name, "data"), d))
}

func (s *Pages) checkBucket(v *page.Visit) error {
	b, err := bucketOf(v)
	if err != nil {
		return err
	}
	_, _, err = s.Buckets.Check(v.R.Context(), v.Who, b, v.Once())
	if fault.Is(err, fault.Conflict) || fault.Is(err, fault.Unavailable) {
		v.Status = fault.KindOf(err).HTTPStatus()
		return s.showBucket(v, b, BucketForm{Errors: map[string]string{"": sentence(err)}})
	}
	if err != nil {
		return err
	}
	return page.Back(v, "/buckets/"+b.String())
}

func (s *Pages) rotateBucket(v *page.Visit) error {
	b, err := bucketOf(v)
	if err != nil {
		return err
	}
	f := BucketForm{AccessKeyID: strings.TrimSpace(v.R.PostFormValue("access_key_id"))}
	_, err = s.Buckets.Rotate(v.R.Context(), v.Who, b,
		bucket.Credentials{AccessKeyID: f.AccessKeyID, Secret: strings.TrimSpace(v.R.PostFormValue("secret_access_key"))})
	if err != nil {
		return s.Again(v, err, func(errs map[string]string) error {
			f.Errors = errs
			return s.showBucket(v, b, f)
		})
	}
	return page.Back(v, "/buckets/"+b.String())
}

func (s *Pages) deleteBucket(v *page.Visit) error {
	b, err := bucketOf(v)
	if err != nil {
		return err
	}
	if err := s.Buckets.Delete(v.R.Context(), v.Who, b); err != nil {
		return err
	}
	return page.Back(v, "/buckets")
}
