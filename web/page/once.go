package page

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"

	"github.com/musterhq/muster/internal/idem"
)

// NewOnce returns a random word for a form's field "once", so that a form that is sent twice takes effect once.
func NewOnce() string { return rand.Text() }

// Once returns the idempotency key of a posted form: its field "once", and the values of the named fields. A form
// without that field takes effect each time.
func (v *Visit) Once(fields ...string) idem.Request {
	word := v.R.FormValue("once")
	if word == "" {
		return idem.Request{}
	}
	said := make([]string, len(fields))
	for i, f := range fields {
		said[i] = v.R.FormValue(f)
	}
	body, _ := json.Marshal(said) // strings always marshal
	mac, key := sha256.Sum256(body), sha256.Sum256([]byte(word))
	return idem.Request{
		Principal: v.Who.Key(),
		Method:    v.R.Method,
		Path:      v.R.URL.Path,
		Key:       hex.EncodeToString(key[:]),
		BodyHMAC:  mac[:],
	}
}
