package bucket

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"

	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/publicnet"
)

const (
	checkTime = 15 * time.Second // of a check, with all its requests
	maxAnswer = 1 << 20          // bytes of an answer that are read
	maxChecks = 16               // that a replica does at the same time
)

// try checks that a store lists a bucket with these credentials and, for ReadWrite, stores, shows and deletes an object
// in it. Faults: Invalid, with the field that is wrong; Unavailable if too many checks are under way.
func (b *Buckets) try(ctx context.Context, t Target, mode string, key Credentials) error {
	ctx, cancel := context.WithTimeout(ctx, checkTime)
	defer cancel()
	select {
	case b.checks <- struct{}{}:
		defer func() { <-b.checks }()
	case <-ctx.Done():
		return fault.New(fault.Unavailable, "too many buckets are being checked: try again in a minute")
	}
	c, closeIdle, err := b.connect(t, key)
	if err != nil {
		return err
	}
	defer closeIdle()
	if err := list(ctx, c, t); err != nil {
		return t.explain(err, "list")
	}
	if mode == ReadOnly {
		return nil
	}
	return t.probe(ctx, c)
}

func (b *Buckets) connect(t Target, key Credentials) (c *minio.Client, closeIdle func(), err error) {
	u, err := url.Parse(t.Endpoint)
	if err != nil {
		return nil, nil, fault.InvalidField("endpoint", "is not an address")
	}
	dialer := &net.Dialer{Timeout: checkTime}
	if !b.cfg.AnyAddress {
		dialer.Control = publicnet.Control
	}
	transport := &http.Transport{ // without the proxy of the environment
		DialContext: dialer.DialContext, TLSHandshakeTimeout: checkTime, ResponseHeaderTimeout: checkTime,
		MaxResponseHeaderBytes: 64 << 10, DisableCompression: true,
	}
	c, err = minio.New(u.Host, &minio.Options{
		Creds: credentials.NewStaticV4(key.AccessKeyID, key.Secret, ""), Secure: u.Scheme == "https", Region: t.Region,
		Transport: guarded{transport}, MaxRetries: 1,
	})
	if err != nil {
		return nil, nil, fault.Wrap(err, fault.Invalid, "endpoint: is not an address of a store")
	}
	return c, transport.CloseIdleConnections, nil
}

// guarded bounds what is read of an answer, and does not let the client follow redirects.
type guarded struct{ next http.RoundTripper }

func (g guarded) RoundTrip(r *http.Request) (*http.Response, error) {
	a, err := g.next.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	a.Header.Del("Location")
	a.Body = struct {
		io.Reader
		io.Closer
	}{io.LimitReader(a.Body, maxAnswer), a.Body}
	return a, nil
}

func list(ctx context.Context, c *minio.Client, t Target) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for o := range c.ListObjectsIter(ctx, t.Bucket, minio.ListObjectsOptions{Prefix: t.key(""), MaxKeys: 1}) {
		return o.Err
	}
	return nil
}

// key is the key of an object of the bucket.
func (t Target) key(name string) string {
	if t.Prefix == "" {
		return name
	}
	return t.Prefix + "/" + name
}

// probe stores a small object, looks for it and deletes it.
func (t Target) probe(ctx context.Context, c *minio.Client) error {
	random := make([]byte, 8)
	_, _ = rand.Read(random) // never fails
	key := t.key(".muster-check-" + hex.EncodeToString(random))
	const text = "Muster checks with this object whether it can write here, and deletes it at once.\n"
	_, err := c.PutObject(ctx, t.Bucket, key, strings.NewReader(text), int64(len(text)),
		minio.PutObjectOptions{DisableMultipart: true, SendContentMd5: true, ContentType: "text/plain"})
	if err != nil {
		return t.explain(err, "write to")
	}
	_, lookErr := c.StatObject(ctx, t.Bucket, key, minio.StatObjectOptions{})
	if err := c.RemoveObject(ctx, t.Bucket, key, minio.RemoveObjectOptions{}); err != nil {
		return t.explain(err, "delete from")
	}
	if lookErr != nil {
		return t.explain(lookErr, "read")
	}
	return nil
}

// explain turns the error of a request to a store into a fault of the field that is wrong. What it says of the
// network is only whether the address can be reached.
func (t Target) explain(err error, doing string) error {
	var answer minio.ErrorResponse
	if !errors.As(err, &answer) || answer.StatusCode == 0 && answer.Code != "InvalidBucketName" {
		return fault.InvalidField("endpoint", "%s", unreachable(err))
	}
	switch answer.Code {
	case "InvalidAccessKeyId", "XAdminUserNotFound": // the latter is of versitygw
		return fault.InvalidField("access_key_id", "the store does not know this access key")
	case "SignatureDoesNotMatch":
		return fault.InvalidField("secret_access_key", "the store does not accept it: it is not the secret of this access "+
			"key")
	case "AuthorizationHeaderMalformed", "PermanentRedirect", "TemporaryRedirect", "InvalidRegion",
		"IllegalLocationConstraintException":
		return fault.InvalidField("region", "the bucket is not in %s%s", t.Region, elsewhere(answer.Region, t.Region))
	case "NoSuchBucket":
		return fault.InvalidField("bucket", "the store has no bucket %s", t.Bucket)
	case "InvalidBucketName":
		return fault.InvalidField("bucket", "is not the name of a bucket")
	case "RequestTimeTooSkewed":
		return fault.InvalidField("endpoint", "the store's clock differs too much from ours")
	case "AccessDenied", "AllAccessDisabled", "AccountProblem":
		if doing == "write to" || doing == "delete from" {
			return fault.InvalidField("mode", "the access key may not %s the bucket: allow it, or choose ro", doing)
		}
		return fault.InvalidField("access_key_id", "the access key may not %s the bucket", doing)
	}
	return fault.InvalidField("endpoint", "the store answers %s", codeOf(answer))
}

// elsewhere says where the bucket is, if the store does.
func elsewhere(region, not string) string {
	if region == "" || region == not || !regionShape.MatchString(region) {
		return ""
	}
	return ", but in " + region
}

var codeShape = regexp.MustCompile(`^[A-Za-z]{1,64}$`)

// codeOf is what may be shown of an answer: its status, and its code if that looks like one.
func codeOf(answer minio.ErrorResponse) string {
	status := fmt.Sprintf("%d %s", answer.StatusCode, http.StatusText(answer.StatusCode))
	if codeShape.MatchString(answer.Code) {
		return strings.TrimSpace(status) + " (" + answer.Code + ")"
	}
	return strings.TrimSpace(status)
}

// unreachable says why there was no answer, without what the platform's network looks like from inside.
func unreachable(err error) string {
	var timeout net.Error
	var name *net.DNSError
	var certificate *tls.CertificateVerificationError
	var record tls.RecordHeaderError
	switch {
	case errors.Is(err, publicnet.ErrOutside):
		return publicnet.ErrOutside.Error()
	case errors.As(err, &name):
		return "the host's name cannot be resolved"
	case errors.As(err, &certificate):
		return "the certificate is not valid for this address"
	case errors.As(err, &record), errors.Is(err, http.ErrSchemeMismatch):
		return "there is no TLS at this address"
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &timeout) && timeout.Timeout():
		return fmt.Sprintf("there was no answer within %d seconds", int(checkTime.Seconds()))
	}
	return "the address cannot be reached, or is not that of an S3-compatible store"
}
