package cluster

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"slices"

	"golang.org/x/crypto/ssh"

	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/audit"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/fleet/cluster/lifecycle"
	"github.com/musterhq/muster/internal/fleet/market"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/seal"
)

// Ingress lets people's connections in to the ranks of clusters, through the gateway of shells and ports.
type Ingress struct {
	db    *db.DB
	box   *seal.Box
	views *Views
}

// Door is the organisation of a cluster and the SSH keys that open its shells.
type Door struct {
	Org   id.Org
	Nodes int
	keys  []id.SSHKey // empty = every key of the organisation
}

// Opens reports whether this key of the organisation opens shells.
func (d Door) Opens(key id.SSHKey) bool { return len(d.keys) == 0 || slices.Contains(d.keys, key) }

// Door finds a cluster for a visitor who has not presented a key of its organisation yet. Fault: NotFound, which
// discloses nothing else.
func (in *Ingress) Door(ctx context.Context, cl id.Cluster) (Door, error) {
	row, err := in.db.Q.GetCluster(ctx, cl)
	if db.NoRows(err) {
		return Door{}, errNotFound
	}
	if err != nil {
		return Door{}, fmt.Errorf("find %s: %w", cl, err)
	}
	var spec market.Spec
	if err := json.Unmarshal(row.Cluster.Spec, &spec); err != nil {
		return Door{}, fmt.Errorf("read the spec of %s: %w", cl, err)
	}
	return Door{Org: row.Cluster.OrgID, Nodes: int(row.Cluster.NodeCount), keys: spec.SSHKeyIDs}, nil
}

// Rank is where one rank of a running cluster is.
type Rank struct {
	Host id.Host
	Ref  agentapi.LeaseRef
}

// Shell finds a rank of one of the organisation's clusters for a shell or a port. Fault: Conflict if the rank does not
// run at the moment; the message explains why to the renter.
func (in *Ingress) Shell(ctx context.Context, org id.Org, cl id.Cluster, rank int) (Rank, error) {
	row, err := in.views.owned(ctx, org, cl)
	if err != nil {
		return Rank{}, err
	}
	if rank < 0 || rank >= int(row.NodeCount) {
		return Rank{}, fault.New(fault.Invalid, "There is no rank %d: %s has ranks 0 to %d.", rank, cl, row.NodeCount-1)
	}
	l, err := in.db.Q.ShellLease(ctx, cl, int32(rank))
	if err != nil {
		return Rank{}, fmt.Errorf("where rank %d of %s is: %w", rank, cl, err)
	}
	switch state := lifecycle.State(l.State); {
	case state == lifecycle.Provisioning:
		return Rank{}, fault.New(fault.Conflict, "%s is still starting: rank %d is %s. Its shell opens once every rank runs.",
			cl, rank, l.NodeState)
	case state != lifecycle.Running && state != lifecycle.Degraded:
		return Rank{}, fault.New(fault.Conflict, "%s is %s: there is nothing left to open a shell on. Its logs stay: "+
			"muster cluster logs %s", cl, state, cl)
	case lifecycle.NodeState(l.NodeState) != lifecycle.NodeReady:
		return Rank{}, fault.New(fault.Conflict, "Rank %d of %s is %s at the moment.", rank, cl, l.NodeState)
	}
	return Rank{Host: l.HostID, Ref: agentapi.LeaseRef{Lease: l.LeaseID.String(), Epoch: int(l.Epoch)}}, nil
}

// SSHHostKeys returns the host keys of the platform's SSH gateway. The first replica that calls it creates them, and
// all replicas use the same. Keys that were sealed with another secret are sealed again.
func (in *Ingress) SSHHostKeys(ctx context.Context) ([]ssh.Signer, error) {
	stored, err := in.db.Q.SSHHostKeys(ctx)
	if err != nil {
		return nil, fmt.Errorf("SSH host keys: %w", err)
	}
	if len(stored) < len(sshAlgorithms) {
		for name, generate := range sshAlgorithms {
			if err := in.storeSSHHostKey(ctx, name, generate); err != nil {
				return nil, fmt.Errorf("make the SSH host key %s: %w", name, err)
			}
		}
		if stored, err = in.db.Q.SSHHostKeys(ctx); err != nil {
			return nil, fmt.Errorf("SSH host keys: %w", err)
		}
	}
	var out []ssh.Signer
	for _, s := range stored {
		raw, err := in.box.Open(s.Sealed, sealedSSHKey(s.Algorithm))
		if err != nil {
			return nil, fmt.Errorf("the SSH host key %s: %w", s.Algorithm, err)
		}
		if fresh, stale, err := in.box.Reseal(s.Sealed, sealedSSHKey(s.Algorithm)); err == nil && stale {
			if _, err := in.db.Q.ResealSSHHostKey(ctx, fresh, s.Algorithm, s.Sealed); err != nil {
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

func (in *Ingress) storeSSHHostKey(ctx context.Context, name string, generate func() (crypto.PrivateKey, error)) error {
	key, err := generate()
	if err != nil {
		return err
	}
	raw, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	return in.db.Q.InsertSSHHostKey(ctx, name, in.box.Seal(raw, sealedSSHKey(name)))
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
func (in *Ingress) RecordAccess(ctx context.Context, a Access) error {
	err := in.db.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
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
