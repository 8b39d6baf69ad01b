package account

import (
	"crypto/rsa"
	"encoding/base64"
	"errors"
	"strings"
	"unicode/utf8"

	"golang.org/x/crypto/ssh"

	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/text"
)

const (
	maxKeyText  = 16 << 10
	maxNameRune = 80 // see checkName
	minRSABits  = 2048
)

// ParsePublicKey reads a public key and its comment from a .pub file of OpenSSH, where empty lines and lines of
// comments are ignored, or from a file of PuTTY's (RFC 4716). It refuses options before the key, keys that are no
// longer considered safe, and private keys, of which it says so plainly.
func ParsePublicKey(from string) (ssh.PublicKey, string, error) {
	from = strings.TrimSpace(strings.TrimPrefix(from, "\ufeff"))
	refuse := func(format string, args ...any) (ssh.PublicKey, string, error) {
		return nil, "", fault.InvalidField("public_key", format, args...)
	}
	switch {
	case from == "":
		return refuse("is missing: paste the line of your .pub file, such as ~/.ssh/id_ed25519.pub")
	case strings.Contains(from, "PRIVATE KEY"):
		return refuse("this is a PRIVATE key, which must never leave your machine; it was not stored. Paste the line of " +
			"the .pub file next to it. If you have pasted it anywhere else, make a new pair")
	case strings.HasPrefix(from, "PuTTY-User-Key-File-"):
		return refuse("this is a PRIVATE key of PuTTY's, which must never leave your machine; it was not stored. Paste " +
			"what puttygen FILE.ppk -O public-openssh prints. If you have pasted it anywhere else, make a new pair")
	case len(from) > maxKeyText:
		return refuse("is too long for a public key")
	case strings.HasPrefix(from, ssh2Begin):
		key, comment, err := parseSSH2(from)
		if err != nil {
			return refuse("is not a whole public key in PuTTY's form (RFC 4716): %s", err)
		}
		return checkKey(key, comment)
	}
	lines := keyLines(from)
	switch {
	case len(lines) > 1:
		return refuse("has to be one line: add keys one at a time")
	case len(lines) == 0:
		return refuse("has only comments: paste the line of your .pub file")
	}
	key, comment, options, _, err := ssh.ParseAuthorizedKey([]byte(lines[0]))
	switch {
	case err != nil:
		return refuse("is not an OpenSSH public key, such as \"ssh-ed25519 AAAA… you@laptop\"")
	case len(options) > 0:
		return refuse("options before the key are not supported: paste the key without them")
	}
	return checkKey(key, comment)
}

// keyLines returns the lines that are neither empty nor comments.
func keyLines(from string) []string {
	var out []string
	for line := range strings.FieldsFuncSeq(from, func(r rune) bool { return r == '\n' || r == '\r' }) {
		if line = strings.TrimSpace(line); line != "" && line[0] != '#' {
			out = append(out, line)
		}
	}
	return out
}

const (
	ssh2Begin = "---- BEGIN SSH2 PUBLIC KEY ----"
	ssh2End   = "---- END SSH2 PUBLIC KEY ----"
)

// parseSSH2 reads the form of RFC 4716: headers, of which Comment is one and which a backslash continues on the next
// line, and the key in base64.
func parseSSH2(from string) (ssh.PublicKey, string, error) {
	body, rest, ended := strings.Cut(strings.TrimPrefix(from, ssh2Begin), ssh2End)
	switch {
	case !ended:
		return nil, "", errors.New("its last line is missing: " + ssh2End)
	case strings.TrimSpace(rest) != "":
		return nil, "", errors.New("text follows it: add keys one at a time")
	}
	body = strings.ReplaceAll(strings.ReplaceAll(body, "\r\n", "\n"), "\\\n", "")
	var comment string
	var encoded strings.Builder
	for line := range strings.SplitSeq(body, "\n") {
		name, value, header := strings.Cut(line, ":")
		switch {
		case !header:
			encoded.WriteString(strings.TrimSpace(line))
		case strings.EqualFold(name, "Comment"):
			comment = strings.Trim(strings.TrimSpace(value), `"`)
		}
	}
	wire, err := base64.StdEncoding.DecodeString(encoded.String())
	if err != nil {
		return nil, "", errors.New("its text is not base64")
	}
	key, err := ssh.ParsePublicKey(wire)
	if err != nil {
		return nil, "", errors.New("no key is in it")
	}
	return key, comment, nil
}

// checkKey refuses keys that are no longer considered safe.
func checkKey(key ssh.PublicKey, comment string) (ssh.PublicKey, string, error) {
	refuse := func(format string, args ...any) (ssh.PublicKey, string, error) {
		return nil, "", fault.InvalidField("public_key", format, args...)
	}
	if _, ok := key.(*ssh.Certificate); ok {
		return refuse("is a certificate; paste the public key itself")
	}
	switch key.Type() {
	case ssh.KeyAlgoED25519, ssh.KeyAlgoECDSA256, ssh.KeyAlgoECDSA384, ssh.KeyAlgoECDSA521, ssh.KeyAlgoSKED25519,
		ssh.KeyAlgoSKECDSA256:
	case ssh.KeyAlgoRSA:
		crypto, ok := key.(ssh.CryptoPublicKey)
		if !ok {
			return refuse("is an RSA key that cannot be read")
		}
		pub, ok := crypto.CryptoPublicKey().(*rsa.PublicKey)
		if !ok || pub.N.BitLen() < minRSABits {
			return refuse("is an RSA key of less than %d bits, which is too weak: make a new one with ssh-keygen -t ed25519",
				minRSABits)
		}
	default:
		return refuse("keys of type %s are too weak: make a new one with ssh-keygen -t ed25519", key.Type())
	}
	return key, strings.TrimSpace(comment), nil
}

// nameOf makes a name of a comment: one line, of as many characters as a name may have.
func nameOf(comment string) string {
	name := strings.Join(strings.Fields(text.OneLine(text.Clip(comment, maxKeyText))), " ")
	if utf8.RuneCountInString(name) <= maxNameRune {
		return name
	}
	return strings.TrimSpace(string([]rune(name)[:maxNameRune-1])) + "…"
}
