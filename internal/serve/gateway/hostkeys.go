package gateway

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"fmt"
	"strings"

	"golang.org/x/crypto/ssh"

	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/seal"
)

// HostKeys are the platform's, made by the first replica that asks. What another secret has sealed is sealed again.
func HostKeys(ctx context.Context, d *db.DB, box *seal.Box) ([]ssh.Signer, error) {
	stored, err := d.Q.SSHHostKeys(ctx)
	if err != nil {
		return nil, fmt.Errorf("SSH host keys: %w", err)
	}
	if len(stored) < len(algorithms) {
		for name, generate := range algorithms {
			if err := storeHostKey(ctx, d, box, name, generate); err != nil {
				return nil, fmt.Errorf("make the SSH host key %s: %w", name, err)
			}
		}
		if stored, err = d.Q.SSHHostKeys(ctx); err != nil {
			return nil, fmt.Errorf("SSH host keys: %w", err)
		}
	}
	var out []ssh.Signer
	for _, s := range stored {
		raw, err := box.Open(s.Sealed, belongs(s.Algorithm))
		if err != nil {
			return nil, fmt.Errorf("the SSH host key %s: %w", s.Algorithm, err)
		}
		if fresh, stale, err := box.Reseal(s.Sealed, belongs(s.Algorithm)); err == nil && stale {
			if _, err := d.Q.ResealSSHHostKey(ctx, fresh, s.Algorithm, s.Sealed); err != nil {
				return nil, fmt.Errorf("seal the SSH host key %s again: %w", s.Algorithm, err)
			}
		}
		key, err := x509.ParsePKCS8PrivateKey(raw)
		if err != nil {
			return nil, fmt.Errorf("the SSH host key %s: %w", s.Algorithm, err)
		}
		signer, err := ssh.NewSignerFromKey(key)
		if err != nil {
			return nil, fmt.Errorf("the SSH host key %s: %w", s.Algorithm, err)
		}
		out = append(out, signer)
	}
	return out, nil
}

// algorithms every client of the last ten years speaks at least one of.
var algorithms = map[string]func() (crypto.PrivateKey, error){
	"ed25519": func() (crypto.PrivateKey, error) {
		_, key, err := ed25519.GenerateKey(rand.Reader)
		return key, err
	},
	"ecdsa-p256": func() (crypto.PrivateKey, error) {
		return ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	},
}

func storeHostKey(ctx context.Context, d *db.DB, box *seal.Box, name string,
	generate func() (crypto.PrivateKey, error)) error {
	key, err := generate()
	if err != nil {
		return err
	}
	raw, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	return d.Q.InsertSSHHostKey(ctx, name, box.Seal(raw, belongs(name)))
}

func belongs(algorithm string) string { return "ssh_host_key:" + algorithm }

// PublicKeys are the host keys as lines of a known_hosts file, without the address.
func PublicKeys(keys []ssh.Signer) []string {
	out := make([]string, len(keys))
	for i, k := range keys {
		out[i] = strings.TrimSpace(string(ssh.MarshalAuthorizedKey(k.PublicKey())))
	}
	return out
}
