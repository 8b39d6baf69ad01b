package bucket

import (
	"net/url"
	"regexp"
	"strings"

	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/publicnet"
)

// DefaultRegion is the region of a bucket whose renter names none. Stores without regions accept it.
const DefaultRegion = "us-east-1"

const (
	maxEndpoint = 300
	maxPrefix   = 500
	maxKeyID    = 200
	maxSecret   = 500
)

var (
	nameShape   = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)
	bucketShape = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{1,61}[A-Za-z0-9]$`)
	regionShape = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)
)

// check completes n with defaults and refuses what cannot be a bucket, without asking its store.
func (n *NewBucket) check(anyAddress bool) error {
	var bad fault.Fields
	if !nameShape.MatchString(n.Name) {
		bad.Add("name", "Use up to 63 lower-case letters, digits and dashes, such as results.")
	}
	if n.Mode == "" {
		n.Mode = ReadWrite
	}
	if n.Mode != ReadWrite && n.Mode != ReadOnly {
		bad.Add("mode", "want rw or ro")
	}
	n.Target.check(&bad, anyAddress)
	n.Key.check(&bad)
	return bad.Err()
}

func (t *Target) check(bad *fault.Fields, anyAddress bool) {
	t.Endpoint = strings.TrimSuffix(t.Endpoint, "/")
	if why := badEndpoint(t.Endpoint, anyAddress); why != "" {
		bad.Add("endpoint", "%s", why)
	}
	if t.Region == "" {
		t.Region = DefaultRegion
	}
	if !regionShape.MatchString(t.Region) {
		bad.Add("region", "want a region such as eu-central-1")
	}
	if !bucketShape.MatchString(t.Bucket) || strings.Contains(t.Bucket, "..") {
		bad.Add("bucket", "is not the name of a bucket: want 3 to 63 letters, digits, dots and dashes")
	}
	t.Prefix = strings.Trim(t.Prefix, "/")
	if !visible(t.Prefix, maxPrefix) {
		bad.Add("prefix", "want at most %d visible characters, without spaces", maxPrefix)
	}
	for _, part := range strings.Split(t.Prefix, "/") {
		if part == "." || part == ".." || part == "" && t.Prefix != "" {
			bad.Add("prefix", "must not have the parts . and .. nor empty ones")
			break
		}
	}
}

// badEndpoint says why an address cannot be that of a store. A name is only resolved when the store is asked.
func badEndpoint(raw string, anyAddress bool) string {
	u, err := url.Parse(raw)
	switch {
	case err != nil || raw == "" || !visible(raw, maxEndpoint):
		return "is not an address such as https://s3.eu-central-1.amazonaws.com"
	case u.Scheme != "https" && !(anyAddress && u.Scheme == "http"):
		return "has to begin with https://"
	case u.User != nil:
		return "must not contain credentials: they have fields of their own"
	case u.Hostname() == "":
		return "names no host"
	case strings.Trim(u.Path, "/") != "" || u.RawQuery != "" || u.Fragment != "":
		return "must end after the host: the bucket and the prefix have fields of their own"
	case !anyAddress && !publicnet.Host(u.Hostname()):
		return publicnet.ErrOutside.Error()
	}
	return ""
}

func (c Credentials) check(bad *fault.Fields) {
	if c.AccessKeyID == "" || !visible(c.AccessKeyID, maxKeyID) {
		bad.Add("access_key_id", "want the id of an access key")
	}
	if c.Secret == "" || !visible(c.Secret, maxSecret) {
		bad.Add("secret_access_key", "want the secret of the access key")
	}
}

// visible reports whether a text has at most so many bytes, all of them visible ASCII.
func visible(s string, most int) bool {
	return len(s) <= most && !strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r > '~' })
}
