package store

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"iter"
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

// How long a store may take to begin an answer, and to take a body or to work through a list; how often a request is
// sent that it does not answer.
const (
	answerTime = 20 * time.Second
	bulkTime   = 2 * time.Minute
	tries      = 3
)

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
	transport, err := minio.DefaultTransport(u.Scheme == "https")
	if err != nil {
		return nil, fmt.Errorf("open the store: %w", err)
	}
	transport.ResponseHeaderTimeout = answerTime
	c, err := minio.New(u.Host, &minio.Options{
		Creds: credentials.NewStaticV4(cfg.Access, cfg.Secret, ""), Secure: u.Scheme == "https", Region: region,
		BucketLookup: minio.BucketLookupPath, MaxRetries: tries, Transport: transport,
	})
	if err != nil {
		return nil, fmt.Errorf("open the store: %w", err)
	}
	prefix := strings.Trim(cfg.Prefix, "/")
	if prefix != "" {
		prefix += "/"
	}
	return &S3{c: c, bucket: cfg.Bucket, prefix: prefix, http: &http.Client{Timeout: bulkTime}}, nil
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
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
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
func (s *S3) Delete(ctx context.Context, keys ...string) error {
	ctx, cancel := context.WithTimeout(ctx, bulkTime)
	defer cancel()
	if len(keys) == 1 {
		err := named(s.c.RemoveObject(ctx, s.bucket, s.prefix+keys[0], minio.RemoveObjectOptions{}))
		if errors.Is(err, ErrNotFound) {
			err = nil
		}
		return err
	}
	objects := make(chan minio.ObjectInfo, len(keys))
	for _, key := range keys {
		objects <- minio.ObjectInfo{Key: s.prefix + key}
	}
	close(objects)
	var errs []error
	for failed := range s.c.RemoveObjects(ctx, s.bucket, objects, minio.RemoveObjectsOptions{}) {
		if err := named(failed.Err); err != nil && !errors.Is(err, ErrNotFound) {
			errs = append(errs, fmt.Errorf("delete %s: %w", strings.TrimPrefix(failed.ObjectName, s.prefix), err))
		}
	}
	return errors.Join(errs...)
}

// List implements Store.
func (s *S3) List(ctx context.Context, prefix, after string) iter.Seq2[Listed, error] {
	opts := minio.ListObjectsOptions{Prefix: s.prefix + prefix, Recursive: true}
	if after != "" {
		opts.StartAfter = s.prefix + after
	}
	return func(yield func(Listed, error) bool) {
		for o := range s.c.ListObjectsIter(ctx, s.bucket, opts) {
			if o.Err != nil {
				yield(Listed{}, fmt.Errorf("list the store: %w", o.Err))
				return
			}
			key := strings.TrimPrefix(o.Key, s.prefix)
			if !yield(Listed{Key: key, Bytes: o.Size, At: o.LastModified}, nil) {
				return
			}
		}
	}
}

// plainPut stores an object as stores do that know neither checksums of requests nor conditions.
func (s *S3) plainPut(ctx context.Context, key string, body io.Reader, size int64) error {
	ctx, cancel := context.WithTimeout(ctx, bulkTime)
	defer cancel()
	_, err := s.c.PutObject(ctx, s.bucket, s.prefix+key, body, size,
		minio.PutObjectOptions{DisableMultipart: true, SendContentMd5: true, ContentType: "application/octet-stream"})
	return err
}
