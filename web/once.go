package web

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"

	"github.com/musterhq/muster/internal/idem"
)

// newOnce is a word that a form carries in its field "once": sent twice by an impatient hand, it does its work once.
func newOnce() string { return rand.Text() }

// once is the idempotency of a posted form: the word it carries, and what the named fields say. A form without the word
// does its work each time.
func (v *visit) once(fields ...string) idem.Request {
	word := v.r.FormValue("once")
	if word == "" {
		return idem.Request{}
	}
	said := make([]string, len(fields))
	for i, f := range fields {
		said[i] = v.r.FormValue(f)
	}
	body, _ := json.Marshal(said) // strings always can be
	mac, key := sha256.Sum256(body), sha256.Sum256([]byte(word))
	return idem.Request{
		Principal: v.who.Key(),
		Method:    v.r.Method,
		Path:      v.r.URL.Path,
		Key:       hex.EncodeToString(key[:]),
		BodyHMAC:  mac[:],
	}
}
