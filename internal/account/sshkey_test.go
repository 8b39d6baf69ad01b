package account_test

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"encoding/pem"
	"math/big"
	"slices"
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

// ssh2 writes a line of an authorized_keys file in the form of RFC 4716.
func ssh2(line, headers string) string {
	b := "---- BEGIN SSH2 PUBLIC KEY ----\n" + headers + "\n"
	for part := range slices.Chunk([]byte(strings.Fields(line)[1]), 64) {
		b += string(part) + "\n"
	}
	return b + "---- END SSH2 PUBLIC KEY ----\n"
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
		"ed25519":        {good + " ada@laptop\n", ""},
		"ecdsa":          {line(t, &ec.PublicKey), ""},
		"nothing":        {"  ", "missing"},
		"private":        {string(pem.EncodeToMemory(block)), "PRIVATE key"},
		"weak RSA":       {line(t, &weak), "too weak"},
		"DSA":            {"ssh-dss AAAAB3NzaC1kc3MAAAAB", "not an OpenSSH public key"},
		"options":        {`command="id" ` + good, "options"},
		"two":            {good + "\n" + good, "one line"},
		"comment lines":  {"\ufeff# of the laptop\r\n\r\n" + good + " ada@laptop\r\n# end\r\n", ""},
		"comments alone": {"# " + good, "only comments"},
		"PuTTY's form":   {ssh2(good, `Comment: "ada@laptop"`), ""},
		"RFC 4716": {"\ufeff" + strings.ReplaceAll(ssh2(good, "Subject: ada\nComment: ada@\\\nlaptop\nX-a: b"), "\n",
			"\r\n"), ""},
		"half of PuTTY's": {"---- BEGIN SSH2 PUBLIC KEY ----", "its last line is missing"},
		"two of PuTTY's":  {ssh2(good, "") + ssh2(good, ""), "one at a time"},
		"PuTTY's weak":    {ssh2(line(t, &weak), ""), "too weak"},
		"PuTTY's private": {"PuTTY-User-Key-File-3: ssh-ed25519\nEncryption: none\nPrivate-Lines: 1\n",
			"puttygen FILE.ppk -O public-openssh"},
		"cut off":          {good[:40], "not an OpenSSH public key"},
		"something absurd": {strings.Repeat("A", 20_000), "too long"},
	} {
		t.Run(name, func(t *testing.T) {
			key, comment, err := account.ParsePublicKey(tc.in)
			if tc.wrong == "" {
				if err != nil || key == nil || strings.Contains(tc.in, "ada@") && comment != "ada@laptop" {
					t.Fatalf("refused, or of comment %q: %v", comment, err)
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
	for comment, want := range map[string]string{
		"ada\tat  home":                "ada at home",
		strings.Repeat("ä", 80):        strings.Repeat("ä", 80),
		strings.Repeat("ä", 200):       strings.Repeat("ä", 79) + "…",
		strings.Repeat("a ", 200):      strings.TrimSpace(strings.Repeat("a ", 40)) + "…",
		"\x1b[31mred\u202e of \xffada": "[31mred of \ufffdada",
		"\t":                           ssh.KeyAlgoED25519,
	} {
		if k, err := add(owner, "", edLine(t)+" "+comment); err != nil || k.Name != want {
			t.Errorf("the name of %q: %q %v", comment, k.Name, err)
		}
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
	if list, err := a.SSHKeys.List(t.Context(), owner, account.Page[id.SSHKey]{Limit: 10}); err != nil || len(list) != 6 {
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
