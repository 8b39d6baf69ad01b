package gateway

import (
	"context"
	"errors"
	"strconv"
	"strings"

	"golang.org/x/crypto/ssh"

	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/fleet/cluster"
	"github.com/musterhq/muster/internal/id"
)

// Visitor is a user who has access to one cluster.
type Visitor struct {
	Org     id.Org
	User    id.User
	Token   id.Token   // zero unless the user came with a token
	Session id.Session // zero unless the user came from a page
	Key     string     // SHA256:… fingerprint of the SSH key; "" without one
	Address string
	Cluster id.Cluster
	Rank    int
	// WorkDir makes commands start in the image's working directory instead of the user's home.
	WorkDir bool
}

// credential returns the credential with which the visitor was authenticated. It ends when the user's role no longer
// includes clusters.
func (v Visitor) credential() account.Credential {
	return account.Credential{
		Org:     v.Org,
		User:    v.User,
		Token:   v.Token,
		Session: v.Session,
		Key:     v.Key,
		Scope:   account.ScopeClusters,
	}
}

// Destination parses the user name of an SSH connection: the cluster's id, optionally followed by a dot or plus and the
// rank.
func Destination(name string) (cl id.Cluster, rank int, err error) {
	text, node, chosen := name, "", false
	if i := strings.IndexAny(name, ".+"); i >= 0 {
		text, node, chosen = name[:i], name[i+1:], true
	}
	if cl, err = id.Parse[id.Cluster](text); err != nil {
		return cl, 0, fault.New(fault.Invalid, "%q is not a cluster's id", text)
	}
	if chosen {
		if rank, err = strconv.Atoi(node); err != nil || rank < 0 {
			return cl, 0, fault.New(fault.Invalid, "%q is not a rank", node)
		}
	}
	return cl, rank, nil
}

// errRefused is the only error that unauthenticated clients see.
var errRefused = errors.New("permission denied")

// visitorKey is the key under which the handshake stores the visitor who belongs to the proven SSH key.
type visitorKey struct{}

// byKey returns a configuration that accepts the keys of the cluster's organisation. If jump is set, the cluster and
// rank are those of jump, whatever user name the client sends.
func (g *Gateway) byKey(ctx context.Context, jump *Visitor, address string) *ssh.ServerConfig {
	cfg := g.base()
	cfg.PublicKeyCallback = func(meta ssh.ConnMetadata, key ssh.PublicKey) (*ssh.Permissions, error) {
		v := Visitor{Address: address}
		var err error
		if jump != nil {
			v.Cluster, v.Rank = jump.Cluster, jump.Rank
		} else if v.Cluster, v.Rank, err = Destination(meta.User()); err != nil {
			return nil, errRefused
		}
		if err := g.admit(ctx, &v, key); err != nil {
			if f := fault.From(err); f == nil {
				g.cfg.Log.Error("the gateway cannot check a key", "err", err)
			}
			return nil, errRefused
		}
		return &ssh.Permissions{ExtraData: map[any]any{visitorKey{}: v}}, nil
	}
	return cfg
}

// admit sets the organisation and user to whom the key belongs, or returns an error if the key does not open the
// cluster.
func (g *Gateway) admit(ctx context.Context, v *Visitor, key ssh.PublicKey) error {
	door, err := g.cfg.Clusters.Ingress.Door(ctx, v.Cluster)
	if err != nil {
		return err
	}
	v.Key = ssh.FingerprintSHA256(key)
	known, err := g.cfg.Accounts.SSHKeys.ByFingerprint(ctx, door.Org, v.Key)
	if err != nil {
		return err
	}
	if !door.Opens(known.ID) {
		return fault.New(fault.Forbidden, "the cluster was not given this key")
	}
	v.Org, v.User = door.Org, known.User
	return nil
}

// visitorOf returns the visitor of the key that the client proved, not of another key that it only offered.
func visitorOf(c *ssh.ServerConn) Visitor {
	v, _ := c.Permissions.ExtraData[visitorKey{}].(Visitor)
	return v
}

// record writes a visitor's access to a rank into the audit log. If it fails, the access must be refused.
func (g *Gateway) record(ctx context.Context, v Visitor, action string, rank int, more map[string]any) error {
	detail := map[string]any{"node": rank}
	if v.Key != "" {
		detail["key"] = v.Key
	}
	for k, x := range more {
		detail[k] = x
	}
	return g.cfg.Clusters.Ingress.RecordAccess(ctx, cluster.Access{
		Org:     v.Org,
		User:    v.User,
		Token:   v.Token,
		Cluster: v.Cluster,
		Action:  action,
		Detail:  detail,
		Address: v.Address,
	})
}

// PublicKeys returns the host keys in the format of a known_hosts file, without addresses.
func PublicKeys(keys []ssh.Signer) []string {
	out := make([]string, len(keys))
	for i, k := range keys {
		out[i] = strings.TrimSpace(string(ssh.MarshalAuthorizedKey(k.PublicKey())))
	}
	return out
}
