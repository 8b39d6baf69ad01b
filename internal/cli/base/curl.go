package base

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"

	"github.com/musterhq/muster/internal/fault"
)

// ErrNotSent is the error of a request that --curl printed instead of sending it.
var ErrNotSent = fault.New(fault.Conflict, "the request was printed, not sent")

// curl prints requests as curl commands. It sends the ones that only read, because later ones depend on their answers;
// the others fail with ErrNotSent.
type curl struct {
	w    io.Writer
	next http.RoundTripper
}

func (c curl) RoundTrip(r *http.Request) (*http.Response, error) {
	var body []byte
	if r.Body != nil {
		var err error
		if body, err = io.ReadAll(r.Body); err != nil {
			return nil, err
		}
		r.Body.Close()
		r.Body = io.NopCloser(bytes.NewReader(body))
	}
	if _, err := io.WriteString(c.w, curlLine(r, body)+"\n"); err != nil {
		return nil, err
	}
	if r.Method != http.MethodGet {
		return nil, ErrNotSent
	}
	return c.next.RoundTrip(r)
}

// curlLine returns the shell command that sends a request. The token is taken from MUSTER_TOKEN, and secrets in the
// body are masked: what is printed may be kept or shared.
func curlLine(r *http.Request, body []byte) string {
	words := []string{"curl"}
	if r.Method != http.MethodGet {
		words = append(words, "-X", r.Method)
	}
	words = append(words, quoted(r.URL.String()))
	if r.Header.Get("Authorization") != "" {
		words = append(words, "-H", `"Authorization: Bearer $MUSTER_TOKEN"`)
	}
	for _, h := range []string{"Content-Type", "Idempotency-Key"} {
		if v := r.Header.Get(h); v != "" {
			words = append(words, "-H", quoted(h+": "+v))
		}
	}
	if len(body) > 0 {
		words = append(words, "-d", quoted(string(masked(body))))
	}
	return strings.Join(words, " ")
}

// quoted quotes a word for a POSIX shell.
func quoted(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

var secretNames = []string{"password", "old_password", "new_password", "secret", "token"}

// masked replaces the values of secrets in a JSON document by dots.
func masked(body []byte) []byte {
	var v any
	d := json.NewDecoder(bytes.NewReader(body))
	d.UseNumber()
	if d.Decode(&v) != nil || !mask(v) {
		return body // as the client wrote it
	}
	out, err := json.Marshal(v)
	if err != nil {
		return fmt.Append(nil, err)
	}
	return out
}

func mask(v any) (changed bool) {
	switch v := v.(type) {
	case map[string]any:
		for k := range v {
			if slices.Contains(secretNames, k) {
				v[k], changed = "…", true
			} else if mask(v[k]) {
				changed = true
			}
		}
	case []any:
		for _, e := range v {
			changed = mask(e) || changed
		}
	}
	return changed
}
