package account_test

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"encoding/pem"
	"math/big"
	"strings"
	"testing"

	"golang.org/x/crypto/ssh"

	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/idem"
)

func line(t testing.TB, public any) string {
	t.Helper()
	k, err := ssh.NewPublicKey(public)
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(ssh.MarshalAuthorizedKey(k)))
}

func edLine(t testing.TB) string {
	t.Helper()
	pub, _, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return line(t, pub)
}

func TestParsePublicKey(t *testing.T) {
	t.Parallel()
	_, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	block, err := ssh.MarshalPrivateKey(private, "")
	if err != nil {
		t.Fatal(err)
	}
	ec, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	strong, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	// A 1024-bit key as OpenSSH wrote them long ago: Go no longer makes one.
	weak := rsa.PublicKey{N: new(big.Int).Rsh(strong.N, 1024), E: strong.E}
	good := edLine(t)
	for name, tc := range map[string]struct{ in, wrong string }{
		"ed25519":          {good + " ada@laptop\n", ""},
		"ecdsa":            {line(t, &ec.PublicKey), ""},
		"nothing":          {"  ", "missing"},
		"private":          {string(pem.EncodeToMemory(block)), "PRIVATE key"},
		"weak RSA":         {line(t, &weak), "too weak"},
		"DSA":              {"ssh-dss AAAAB3NzaC1kc3MAAAAB", "not an OpenSSH public key"},
		"options":          {`command="id" ` + good, "options"},
		"two":              {good + "\n" + good, "one line"},
		"PuTTY's form":     {"---- BEGIN SSH2 PUBLIC KEY ----", "not an OpenSSH public key"},
		"cut off":          {good[:40], "not an OpenSSH public key"},
		"something absurd": {strings.Repeat("A", 20_000), "too long"},
	} {
		t.Run(name, func(t *testing.T) {
			key, _, err := account.ParsePublicKey(tc.in)
			if tc.wrong == "" {
				if err != nil || key == nil {
					t.Fatalf("refused: %v", err)
				}
				return
			}
			f := fault.From(err)
			if f == nil || f.Kind != fault.Invalid || f.Fields[0].Location != "public_key" ||
				!strings.Contains(f.Message, tc.wrong) {
				t.Fatalf("got %v", err)
			}
		})
	}
}

func TestSSHKeys(t *testing.T) {
	t.Parallel()
	d, a := open(t, account.Config{})
	owner, stranger := register(t, a, "ada@example.com"), register(t, a, "eve@example.com")
	add := func(p account.Principal, name, text string) (k account.SSHKey, err error) {
		k, _, err = a.SSHKeys.Add(t.Context(), p, name, text, idem.Request{})
		return k, err
	}
	text := edLine(t)
	k, err := add(owner, "", text+" ada@laptop")
	if err != nil || k.Name != "ada@laptop" || k.PublicKey != text || !strings.HasPrefix(k.Fingerprint, "SHA256:") {
		t.Fatalf("%+v, %v", k, err)
	}
	if _, err := add(owner, "again", text); !fault.Is(err, fault.Conflict) {
		t.Errorf("same key again: %v", err)
	}
	if _, err := add(stranger, "", text); err != nil {
		t.Errorf("another org may have the key too: %v", err)
	}
	if keys, err := account.SSHKeysByID(t.Context(), d.Q, owner.Org, []id.SSHKey{k.ID}); err != nil || len(keys) != 1 ||
		keys[0] != k {
		t.Errorf("%+v, %v", keys, err)
	}
	if _, err := account.SSHKeysByID(t.Context(), d.Q, stranger.Org, []id.SSHKey{k.ID}); !fault.Is(err, fault.Invalid) {
		t.Errorf("another org's key in a spec: %v", err)
	}
	if err := a.SSHKeys.Delete(t.Context(), stranger, k.ID); !fault.Is(err, fault.NotFound) {
		t.Errorf("another org's key: %v", err)
	}
	if err := a.SSHKeys.Delete(t.Context(), owner, k.ID); err != nil {
		t.Fatal(err)
	}
	if list, err := a.SSHKeys.List(t.Context(), owner, account.Page[id.SSHKey]{Limit: 10}); err != nil || len(list) != 0 {
		t.Errorf("%+v, %v", list, err)
	}
}

func FuzzParsePublicKey(f *testing.F) {
	f.Add(edLine(f))
	f.Add(`command="x" ssh-rsa AAAA`)
	f.Fuzz(func(t *testing.T, s string) {
		key, _, err := account.ParsePublicKey(s)
		if err == nil && key == nil {
			t.Error("no key and no error")
		}
		if err != nil && !fault.Is(err, fault.Invalid) {
			t.Errorf("%v is not an input error", err)
		}
	})
}
