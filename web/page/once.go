package page

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"

	"github.com/musterhq/muster/internal/idem"
)

// NewOnce is a word that a form carries in its field "once": sent twice by an impatient hand, it does its work once.
func NewOnce() string { return rand.Text() }

// Once is the idempotency of a posted form: the word it carries, and what the named fields say. A form without the word
// does its work each time.
func (v *Visit) Once(fields ...string) idem.Request {
	word := v.R.FormValue("once")
	if word == "" {
		return idem.Request{}
	}
	said := make([]string, len(fields))
	for i, f := range fields {
		said[i] = v.R.FormValue(f)
	}
	body, _ := json.Marshal(said) // strings always can be
	mac, key := sha256.Sum256(body), sha256.Sum256([]byte(word))
	return idem.Request{
		Principal: v.Who.Key(),
		Method:    v.R.Method,
		Path:      v.R.URL.Path,
		Key:       hex.EncodeToString(key[:]),
		BodyHMAC:  mac[:],
	}
}
