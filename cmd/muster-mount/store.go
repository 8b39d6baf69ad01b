package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/credentials"
	sdk "github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/smithy-go"
	_ "github.com/rclone/rclone/backend/local" // of the cache
	"github.com/rclone/rclone/backend/s3"
	"github.com/rclone/rclone/fs"
	"github.com/rclone/rclone/fs/config/configmap"

	"github.com/musterhq/muster/agent/storage/fusemount/wire"
	"github.com/musterhq/muster/internal/data/packio"
	"github.com/musterhq/muster/internal/publicnet"
)

// name is the name of the store for rclone: a part of the cache's paths.
const name = "bucket"

// checkTime is how long the store may take to answer the first request.
const checkTime = 30 * time.Second

// guard makes all TLS connections of rclone go to the internet only. rclone copies Go's default transport, and replaces
// DialContext, but not DialTLSContext. There is no guard for connections without TLS: they are refused here, and rclone
// refuses redirects to them (AllowHTTPSDowngrade).
func guard(cfg wire.Bucket) error {
	if cfg.AnyAddress {
		return nil
	}
	u, err := url.Parse(cfg.Endpoint)
	if err != nil || u.Scheme != "https" {
		return errors.New("the store's address does not begin with https://")
	}
	dialer := tls.Dialer{
		NetDialer: &net.Dialer{Timeout: 15 * time.Second, KeepAlive: 30 * time.Second, Control: publicnet.Control},
		Config:    &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"}},
	}
	http.DefaultTransport.(*http.Transport).DialTLSContext = dialer.DialContext
	return nil
}

// connect returns the bucket of cfg as rclone sees it. It sends nothing.
func connect(ctx context.Context, cfg wire.Bucket) (fs.Fs, error) {
	ri, err := fs.Find("s3")
	if err != nil {
		return nil, err
	}
	options := configmap.Simple{
		"provider":          provider(cfg.Endpoint),
		"endpoint":          cfg.Endpoint,
		"region":            cfg.Region,
		"access_key_id":     cfg.AccessKeyID,
		"secret_access_key": cfg.Secret,
		"env_auth":          "false",
		"force_path_style":  strconv.FormatBool(provider(cfg.Endpoint) != "AWS"),
		"no_check_bucket":   "true",
		"disable_http2":     "true",
	}
	root := cfg.Bucket
	if cfg.Prefix != "" {
		root += "/" + cfg.Prefix
	}
	m := fs.ConfigMap(ri.Prefix, ri.Options, "", options)
	f, err := s3.NewFs(ctx, name, root+"/", m)
	if err != nil {
		return nil, errors.New("the store's client cannot be made") // what it says could contain a setting
	}
	return f, nil
}

func provider(endpoint string) string {
	if u, err := url.Parse(endpoint); err == nil && strings.HasSuffix(u.Hostname(), ".amazonaws.com") {
		return "AWS"
	}
	return "Other"
}

// reach lists the bucket once. It returns why it cannot be used, and whether the store itself said so. rclone's own
// list looks the same for a missing bucket and for an empty one.
func reach(cfg wire.Bucket) (problem string, refused bool) {
	ctx, cancel := context.WithTimeout(context.Background(), checkTime)
	defer cancel()
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.Proxy = nil
	defer transport.CloseIdleConnections()
	client := sdk.New(sdk.Options{
		BaseEndpoint: &cfg.Endpoint, Region: cfg.Region, UsePathStyle: provider(cfg.Endpoint) != "AWS",
		Credentials: credentials.NewStaticCredentialsProvider(cfg.AccessKeyID, cfg.Secret, ""), RetryMaxAttempts: 2,
		HTTPClient: &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error {
			return http.ErrUseLastResponse
		}},
	})
	prefix, one := "", int32(1)
	if cfg.Prefix != "" {
		prefix = cfg.Prefix + "/"
	}
	_, err := client.ListObjectsV2(ctx, &sdk.ListObjectsV2Input{Bucket: &cfg.Bucket, Prefix: &prefix, MaxKeys: &one})
	if err == nil {
		return "", false
	}
	return explain(err)
}

var codeShape = regexp.MustCompile(`^[A-Za-z]{1,64}$`)

// explain says what is wrong, and whether it is the renter's bucket or key: then a retry does not help. It shows
// nothing of what the store sent but the code of its error.
func explain(err error) (problem string, refused bool) {
	var api smithy.APIError
	var dns *net.DNSError
	var certificate *tls.CertificateVerificationError
	switch {
	case errors.Is(err, publicnet.ErrOutside):
		return publicnet.ErrOutside.Error(), true
	case errors.As(err, &api) && codeShape.MatchString(api.ErrorCode()):
		return explainCode(api.ErrorCode())
	case errors.As(err, &dns):
		return "the name of the store's host cannot be resolved", false
	case errors.As(err, &certificate):
		return "the store's certificate is not valid for its address", false
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Sprintf("the store did not answer within %d seconds", int(checkTime.Seconds())), false
	}
	return "the store cannot be reached", false
}

func explainCode(code string) (problem string, refused bool) {
	switch code {
	case "InvalidAccessKeyId", "XAdminUserNotFound": // the latter is of versitygw
		return "the store does not know the access key", true
	case "SignatureDoesNotMatch":
		return "the store does not accept the secret of the access key", true
	case "AccessDenied", "AllAccessDisabled", "AccountProblem", "Forbidden":
		return "the access key may not list the bucket", true
	case "NoSuchBucket":
		return "the store has no such bucket", true
	case "AuthorizationHeaderMalformed", "PermanentRedirect", "TemporaryRedirect":
		return "the bucket is in another region", true
	}
	if slices.Contains(packio.FullCodes, code) {
		return "the store is full: it answers " + code, false
	}
	return "the store answers " + code, false
}

// explainUpload says why uploads fail. It is rclone's last error: that of another file, perhaps, or of a read.
func explainUpload(err error) string {
	var api smithy.APIError
	if errors.As(err, &api) && api.ErrorCode() == "AccessDenied" {
		return "the access key may not write to the bucket"
	}
	why, _ := explain(err)
	return why
}
