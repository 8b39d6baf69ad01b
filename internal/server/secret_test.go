package server

import (
	"encoding/base64"
	"slices"
	"strings"
	"testing"

	"github.com/musterhq/muster/internal/fault"
)

// While the secret changes, the previous one opens, and the keys of the host link stay those of the old secret.
func TestSecretsWhileTheyChange(t *testing.T) {
	t.Parallel()
	secret := func(b byte) SecretText {
		return SecretText(base64.StdEncoding.EncodeToString([]byte(strings.Repeat(string(b), 32))))
	}
	old := Config{Secret: secret('o')}
	c := Config{Secret: secret('n'), SecretPrevious: secret('o'), LinkSecret: secret('o')}
	was, err := old.box()
	if err != nil {
		t.Fatal(err)
	}
	now, err := c.box()
	if err != nil || !now.Rotating() {
		t.Fatal(err)
	}
	if plain, err := now.Open(was.Seal([]byte("x"), "a"), "a"); err != nil || string(plain) != "x" {
		t.Fatal(plain, err)
	}
	if _, err := was.Open(now.Seal([]byte("x"), "a"), "a"); err == nil {
		t.Error("the previous secret seals")
	}
	a, err := old.linkSecret()
	b, err2 := c.linkSecret()
	if err != nil || err2 != nil || string(a) != string(b) {
		t.Error("the keys of the host link change")
	}
	r, err := old.relaySecret()
	r2, err2 := c.relaySecret()
	if err != nil || err2 != nil || string(r) != string(r2) {
		t.Error("the relays' key changes")
	}
	for _, c := range []Config{{
		Secret:         secret('n'),
		SecretPrevious: secret('o'),
	}, {Secret: secret('n'), LinkSecret: "x"}} {
		f := fault.From(c.Validate())
		if f == nil ||
			!slices.ContainsFunc(f.Fields, func(x fault.Field) bool { return x.Location == "MUSTER_LINK_SECRET" }) {
			t.Errorf("%+v", f)
		}
	}
}
