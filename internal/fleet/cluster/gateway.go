package cluster

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"fmt"

	"golang.org/x/crypto/ssh"

	"github.com/musterhq/muster/internal/audit"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/id"
)

// SSHHostKeys returns the keys by which the platform's SSH gateway proves itself. The first replica that asks makes
// them; all replicas show the same. Keys that were sealed with another secret are sealed again.
func (c *Clusters) SSHHostKeys(ctx context.Context) ([]ssh.Signer, error) {
	stored, err := c.db.Q.SSHHostKeys(ctx)
	if err != nil {
		return nil, fmt.Errorf("SSH host keys: %w", err)
	}
	if len(stored) < len(sshAlgorithms) {
		for name, generate := range sshAlgorithms {
			if err := c.storeSSHHostKey(ctx, name, generate); err != nil {
				return nil, fmt.Errorf("make the SSH host key %s: %w", name, err)
			}
		}
		if stored, err = c.db.Q.SSHHostKeys(ctx); err != nil {
			return nil, fmt.Errorf("SSH host keys: %w", err)
		}
	}
	var out []ssh.Signer
	for _, s := range stored {
		raw, err := c.cfg.Box.Open(s.Sealed, sealedSSHKey(s.Algorithm))
		if err != nil {
			return nil, fmt.Errorf("the SSH host key %s: %w", s.Algorithm, err)
		}
		if fresh, stale, err := c.cfg.Box.Reseal(s.Sealed, sealedSSHKey(s.Algorithm)); err == nil && stale {
			if _, err := c.db.Q.ResealSSHHostKey(ctx, fresh, s.Algorithm, s.Sealed); err != nil {
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

// sshAlgorithms are those of the host keys: every client of the last ten years speaks at least one of them.
var sshAlgorithms = map[string]func() (crypto.PrivateKey, error){
	"ed25519": func() (crypto.PrivateKey, error) {
		_, key, err := ed25519.GenerateKey(rand.Reader)
		return key, err
	},
	"ecdsa-p256": func() (crypto.PrivateKey, error) {
		return ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	},
}

func (c *Clusters) storeSSHHostKey(ctx context.Context, name string, generate func() (crypto.PrivateKey, error)) error {
	key, err := generate()
	if err != nil {
		return err
	}
	raw, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	return c.db.Q.InsertSSHHostKey(ctx, name, c.cfg.Box.Seal(raw, sealedSSHKey(name)))
}

// sealedSSHKey is what a sealed key is bound to.
func sealedSSHKey(algorithm string) string { return "ssh_host_key:" + algorithm }

// Access is something that somebody does to a rank through the gateway: a shell, a command, a file transfer, a
// forwarding.
type Access struct {
	Org     id.Org
	User    id.User
	Token   id.Token // zero: by a key or from a page
	Cluster id.Cluster
	Action  string // in the audit log
	Detail  map[string]any
	Address string // where from
}

// RecordAccess writes an access into the audit log.
func (c *Clusters) RecordAccess(ctx context.Context, a Access) error {
	err := c.db.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		return audit.Record(ctx, tx, audit.Event{
			Org:     a.Org,
			User:    a.User,
			Token:   a.Token,
			Action:  a.Action,
			Object:  a.Cluster.String(),
			Detail:  a.Detail,
			Address: a.Address,
		})
	})
	if err != nil {
		return fmt.Errorf("record %s: %w", a.Action, err)
	}
	return nil
}
