package store

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// SignedPath is where a server answers the requests that it has signed itself: SignedPath + key.
const SignedPath = "/data/v1/"

// A signer signs requests that this server answers.
type signer struct {
	base string // URL of SignedPath
	key  []byte
	now  func() time.Time
}

// newSigner returns the signer of a server that is reached at origin, scheme://host[:port]. secret has at least 32
// bytes and is the same on all servers.
func newSigner(origin string, secret []byte) (signer, error) {
	if len(secret) < 32 {
		return signer{}, errors.New("the secret that signs requests to the store has fewer than 32 bytes")
	}
	m := hmac.New(sha256.New, secret)
	m.Write([]byte("muster store folder v1"))
	return signer{base: strings.TrimSuffix(origin, "/") + SignedPath, key: m.Sum(nil), now: time.Now}, nil
}

// keyShape is the form of keys. Nothing else becomes a path.
var keyShape = regexp.MustCompile(`^[a-z]{1,8}/[a-z0-9_]{1,64}/[a-z0-9]{1,64}$`)

func checkKey(key string) error {
	if !keyShape.MatchString(key) {
		return fmt.Errorf("%.100q is not a key", key)
	}
	return nil
}

// claims are what a signed request is for.
type claims struct {
	method, key string
	until       int64 // unix seconds
	bytes       int64 // PUT
	sum         string
}

func (s signer) sign(c claims) Request {
	q := url.Values{"until": {strconv.FormatInt(c.until, 10)}, "sig": {s.mac(c)}}
	header := map[string]string{}
	if c.method == http.MethodPut {
		q.Set("bytes", strconv.FormatInt(c.bytes, 10))
		q.Set("sha256", c.sum)
	}
	return Request{Method: c.method, URL: s.base + c.key + "?" + q.Encode(), Header: header}
}

func (s signer) mac(c claims) string {
	m := hmac.New(sha256.New, s.key)
	fmt.Fprintf(m, "%s\n%s\n%d\n%d\n%s", c.method, c.key, c.until, c.bytes, c.sum)
	return hex.EncodeToString(m.Sum(nil))
}

// verify reads what a request was signed for; ok is false if it was not signed, or its time is over.
func (s signer) verify(r *http.Request, key string) (c claims, ok bool) {
	q := r.URL.Query()
	until, err := strconv.ParseInt(q.Get("until"), 10, 64)
	if err != nil || checkKey(key) != nil || s.now().Unix() > until {
		return c, false
	}
	c = claims{method: r.Method, key: key, until: until}
	switch r.Method {
	case http.MethodPut:
		if c.bytes, err = strconv.ParseInt(q.Get("bytes"), 10, 64); err != nil {
			return c, false
		}
		c.sum = q.Get("sha256")
	case http.MethodHead:
		c.method = http.MethodGet
	case http.MethodGet:
	default:
		return c, false
	}
	return c, hmac.Equal([]byte(q.Get("sig")), []byte(s.mac(c)))
}

// Refusals of signed requests.
const (
	notSigned   = "the request is not signed, or its time is over"
	otherLength = "the body has another length than was signed"
)

var errOther = errors.New("the body is not what was signed")

// answerPut answers a signed PUT whose outcome is err, as an S3 store would.
func answerPut(w http.ResponseWriter, err error) {
	switch {
	case errors.Is(err, fs.ErrExist):
		http.Error(w, "the object exists", http.StatusPreconditionFailed)
	case errors.Is(err, errOther):
		http.Error(w, errOther.Error(), http.StatusBadRequest)
	case err != nil:
		http.Error(w, "the object cannot be stored", http.StatusInternalServerError)
	}
}
