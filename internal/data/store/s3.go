package store

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
)

// S3 is a store with Amazon's S3 protocol.
type S3 struct {
	c      *minio.Client
	bucket string
	prefix string
	http   *http.Client
}

// S3Config says where a bucket is.
type S3Config struct {
	Endpoint string // https://host[:port]; http only on loopback and private networks, which the caller decides
	Region   string // "" = us-east-1
	Bucket   string
	Prefix   string // of all keys; may be empty
	Access   string
	Secret   string
}

// OpenS3 returns the store. It sends nothing yet; see Probe.
func OpenS3(cfg S3Config) (*S3, error) {
	u, err := url.Parse(cfg.Endpoint)
	if err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http" || strings.Trim(u.Path, "/") != "" {
		return nil, errors.New("the endpoint of the store is not https://host[:port]")
	}
	region := cfg.Region
	if region == "" {
		region = "us-east-1"
	}
	c, err := minio.New(u.Host, &minio.Options{
		Creds: credentials.NewStaticV4(cfg.Access, cfg.Secret, ""), Secure: u.Scheme == "https", Region: region,
		BucketLookup: minio.BucketLookupPath,
	})
	if err != nil {
		return nil, fmt.Errorf("open the store: %w", err)
	}
	prefix := strings.Trim(cfg.Prefix, "/")
	if prefix != "" {
		prefix += "/"
	}
	return &S3{c: c, bucket: cfg.Bucket, prefix: prefix, http: &http.Client{Timeout: time.Minute}}, nil
}

// SignPut implements Store.
func (s *S3) SignPut(ctx context.Context, key string, sum [32]byte, bytes int64, until time.Time) (Request, error) {
	header := http.Header{
		"If-None-Match":         {"*"},
		"X-Amz-Checksum-Sha256": {base64.StdEncoding.EncodeToString(sum[:])},
		"Content-Length":        {strconv.FormatInt(bytes, 10)},
	}
	u, err := s.c.PresignHeader(ctx, http.MethodPut, s.bucket, s.prefix+key, ttl(until), nil, header)
	if err != nil {
		return Request{}, fmt.Errorf("sign a PUT: %w", err)
	}
	return Request{Method: http.MethodPut, URL: u.String(), Header: flat(header)}, nil
}

// SignGet implements Store.
func (s *S3) SignGet(ctx context.Context, key string, until time.Time) (Request, error) {
	u, err := s.c.PresignHeader(ctx, http.MethodGet, s.bucket, s.prefix+key, ttl(until), nil, nil)
	if err != nil {
		return Request{}, fmt.Errorf("sign a GET: %w", err)
	}
	return Request{Method: http.MethodGet, URL: u.String(), Header: map[string]string{}}, nil
}

func ttl(until time.Time) time.Duration {
	return max(time.Second, time.Until(until)).Truncate(time.Second)
}

func flat(h http.Header) map[string]string {
	out := map[string]string{}
	for k := range h {
		out[k] = h.Get(k)
	}
	return out
}

// Head implements Store. The sum is zero if the store does not return checksums.
func (s *S3) Head(ctx context.Context, key string) (o Object, err error) {
	info, err := s.c.StatObject(ctx, s.bucket, s.prefix+key, minio.StatObjectOptions{Checksum: true})
	if err != nil {
		return o, named(err)
	}
	o.Bytes = info.Size
	if b, err := base64.StdEncoding.DecodeString(info.ChecksumSHA256); err == nil && len(b) == len(o.Sum) {
		o.Sum = [32]byte(b)
	}
	return o, nil
}

// named turns a missing object into ErrNotFound.
func named(err error) error {
	if err == nil {
		return nil
	}
	if e := minio.ToErrorResponse(err); e.StatusCode == http.StatusNotFound && e.Code != "NoSuchBucket" {
		return ErrNotFound
	}
	return err
}

// Read implements Store.
func (s *S3) Read(ctx context.Context, key string, offset, length int64) (io.ReadCloser, error) {
	var opts minio.GetObjectOptions
	if err := opts.SetRange(offset, offset+length-1); err != nil {
		return nil, err
	}
	core := minio.Core{Client: s.c}
	body, _, _, err := core.GetObject(ctx, s.bucket, s.prefix+key, opts)
	return body, named(err)
}

// Put implements Store.
func (s *S3) Put(ctx context.Context, key string, body []byte) error {
	r, err := s.SignPut(ctx, key, sha256.Sum256(body), int64(len(body)), time.Now().Add(10*time.Minute))
	if err != nil {
		return err
	}
	status, err := s.send(ctx, r, body)
	if err == nil && status != http.StatusOK {
		err = fmt.Errorf("the store answers a PUT with status %d", status)
	}
	return err
}

func (s *S3) send(ctx context.Context, r Request, body []byte) (status int, err error) {
	q, err := http.NewRequestWithContext(ctx, r.Method, r.URL, bytes.NewReader(body))
	if err != nil {
		return 0, errors.New("the signed request cannot be read")
	}
	for k, v := range r.Header {
		q.Header.Set(k, v)
	}
	answer, err := s.http.Do(q)
	if err != nil {
		var u *url.Error // its text has the signed URL
		if errors.As(err, &u) {
			err = u.Err
		}
		return 0, fmt.Errorf("the store does not answer: %w", err)
	}
	defer answer.Body.Close()
	_, _ = io.Copy(io.Discard, io.LimitReader(answer.Body, 64<<10))
	return answer.StatusCode, nil
}

// Delete implements Store.
func (s *S3) Delete(ctx context.Context, key string) error {
	if err := named(s.c.RemoveObject(ctx, s.bucket, s.prefix+key, minio.RemoveObjectOptions{})); err != nil &&
		!errors.Is(err, ErrNotFound) {
		return err
	}
	return nil
}

// Probe implements Store.
func (s *S3) Probe(ctx context.Context) error {
	var body [64]byte
	_, _ = rand.Read(body[:]) // never fails
	key := "probe/x/" + hex.EncodeToString(body[:8])
	defer func() { _ = s.Delete(ctx, key) }() // it stays: a few bytes
	r, err := s.SignPut(ctx, key, sha256.Sum256(body[:]), int64(len(body)), time.Now().Add(time.Minute))
	if err != nil {
		return err
	}
	wrong := body
	wrong[0]++
	bare := r
	bare.Header = map[string]string{}
	for _, step := range []struct {
		what    string
		request Request
		body    []byte
		ok      func(status int) bool
	}{
		{"refuse a body that was not signed", r, wrong[:], func(s int) bool { return s >= 400 && s < 500 }},
		{"refuse a PUT without the signed headers", bare, body[:], func(s int) bool { return s >= 400 && s < 500 }},
		{"store an object", r, body[:], func(s int) bool { return s == http.StatusOK }},
		{"refuse to replace an object (If-None-Match)", r, body[:],
			func(s int) bool { return s == http.StatusPreconditionFailed }},
	} {
		status, err := s.send(ctx, step.request, step.body)
		if err != nil {
			return fmt.Errorf("probe the store: %w", err)
		}
		if !step.ok(status) {
			return fmt.Errorf("the store does not %s: it answers %d", step.what, status)
		}
	}
	o, err := s.Head(ctx, key)
	if err != nil {
		return fmt.Errorf("look for the object of the probe: %w", err)
	}
	if o.Bytes != int64(len(body)) {
		return fmt.Errorf("the store shows %d bytes of %d that were stored", o.Bytes, len(body))
	}
	part, err := s.Read(ctx, key, 8, 8)
	if err != nil {
		return fmt.Errorf("read a range from the store: %w", err)
	}
	defer part.Close()
	b, err := io.ReadAll(io.LimitReader(part, 1<<10))
	if err != nil {
		return fmt.Errorf("read a range from the store: %w", err)
	}
	if !bytes.Equal(b, body[8:16]) {
		return errors.New("the store does not answer ranges")
	}
	return nil
}
