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
	"time"

	"github.com/jackc/pgx/v5/pgtype"
	"golang.org/x/crypto/ssh"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/audit"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/id"
)

const (
	resealRows = 500
	// otherSecretFor is how long the other secret is needed after the last replica that seals with it has stopped: links
	// to apps, answers to repeated requests, and quotes live for at most a day, and the job checks again an hour later.
	otherSecretFor = 25 * time.Hour
)

// SealState is how far secrets at rest are sealed with the present MUSTER_SECRET.
type SealState = client.SealState

// RotatesSecret reports whether a second secret is accepted besides the one that seals.
func (c *Clusters) RotatesSecret() bool { return c.cfg.Box != nil && c.cfg.Box.Rotating() }

// Reseal seals the secrets of all clusters again that were sealed with another secret, and returns their number. Only
// clusters that have not ended have secrets. Call it every minute while a second secret is accepted; any number of
// replicas may do so.
func (c *Clusters) Reseal(ctx context.Context) (n int, err error) {
	var after pgtype.UUID
	remaining := int64(0)
	for {
		rows, err := c.db.Q.SealedClusters(ctx, after, resealRows)
		if err != nil {
			return n, fmt.Errorf("clusters with secrets: %w", err)
		}
		for _, r := range rows {
			fresh, stale, err := c.cfg.Box.Reseal(r.Secrets, belongs(r.ID))
			if err != nil { // sealed with a third secret, or altered: its cluster cannot start anyway
				c.log.Error("a cluster's secrets do not open", "cluster", r.ID, "err", err)
				remaining++
				continue
			}
			if !stale {
				continue
			}
			did, err := c.db.Q.ResealCluster(ctx, fresh, r.ID, r.Secrets)
			if err != nil {
				return n, fmt.Errorf("seal the secrets of %s again: %w", r.ID, err)
			}
			n += int(did)
			remaining += 1 - did // it changed meanwhile: the next pass retries
		}
		if len(rows) < resealRows {
			break
		}
		after = pgtype.UUID{Bytes: rows[len(rows)-1].ID.UUID(), Valid: true}
	}
	if err := c.db.Q.PutSealProgress(ctx, c.sealMark(), int64(n), remaining); err != nil {
		return n, fmt.Errorf("progress of sealing again: %w", err)
	}
	return n, nil
}

func (c *Clusters) sealMark() []byte { return c.cfg.Box.MAC([]byte("muster seal progress v1"))[:8] }

// SealState returns how far secrets at rest are sealed with the present secret. Only staff may call it. Fault:
// Forbidden.
func (c *Clusters) SealState(ctx context.Context, who account.Principal) (SealState, error) {
	if err := account.RequireStaff(who); err != nil {
		return SealState{}, err
	}
	out := SealState{Rotating: c.RotatesSecret()}
	now, err := c.db.Q.DatabaseTime(ctx)
	if err != nil {
		return out, fmt.Errorf("seal state: %w", err)
	}
	p, err := c.db.Q.SealProgress(ctx)
	if db.NoRows(err) {
		return out, nil
	}
	if err != nil {
		return out, fmt.Errorf("seal state: %w", err)
	}
	until := p.BeganAt.Add(otherSecretFor)
	out.Resealed, out.Remaining, out.PassedAt, out.NeededTo = p.Resealed, p.Remaining, &p.PassedAt, &until
	out.Done = p.Remaining == 0 && p.PassedAt.After(until) && string(p.Mark) == string(c.sealMark()) && !now.Before(until)
	return out, nil
}

// SSHHostKeys returns the host keys of the platform's SSH gateway. The first replica that calls it creates them, and
// all replicas use the same. Keys that were sealed with another secret are sealed again.
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

// sshAlgorithms are the algorithms of the host keys: every client of the last ten years supports at least one of them.
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

// sealedSSHKey returns the context to which a sealed key is bound.
func sealedSSHKey(algorithm string) string { return "ssh_host_key:" + algorithm }

// Access is one use of a rank through the gateway: a shell, a command, a file transfer, a forwarding.
type Access struct {
	Org     id.Org
	User    id.User
	Token   id.Token // zero: by a key or from a page
	Cluster id.Cluster
	Action  string // in the audit log
	Detail  map[string]any
	Address string // address of the visitor
}

// RecordAccess records an access in the audit log.
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
