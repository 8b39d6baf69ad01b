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

// Visitor is somebody who has been let in to one cluster.
type Visitor struct {
	Org     id.Org
	User    id.User
	Token   id.Token   // zero for those who came with a key
	Session id.Session // zero for all but those who came from a page
	Key     string     // SHA256:… fingerprint of the key, "" for those who came with a token
	Address string
	Cluster id.Cluster
	Rank    int
	// WorkDir: commands begin where the image begins, not in the user's home.
	WorkDir bool
}

// credential is what the visitor was let in with.
func (v Visitor) credential() account.Credential {
	return account.Credential{Org: v.Org, User: v.User, Token: v.Token, Session: v.Session, Key: v.Key}
}

// Destination reads the user name of an SSH connection: the cluster's id, and after a dot or a plus the rank.
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

// errRefused is all a stranger learns.
var errRefused = errors.New("permission denied")

// visitorKey is where the handshake leaves the visitor that belongs to the key it settled on.
type visitorKey struct{}

// byKey lets in who has a key of the cluster's org. With jump, the cluster and the rank are the visitor's who came
// through, whatever name is given.
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

// admit fills in who the key belongs to.
func (g *Gateway) admit(ctx context.Context, v *Visitor, key ssh.PublicKey) error {
	door, err := g.cfg.Clusters.Door(ctx, v.Cluster)
	if err != nil {
		return err
	}
	v.Key = ssh.FingerprintSHA256(key)
	known, err := g.cfg.Accounts.SSHKeyByFingerprint(ctx, door.Org, v.Key)
	if err != nil {
		return err
	}
	if !door.Opens(known.ID) {
		return fault.New(fault.Forbidden, "the cluster was not given this key")
	}
	v.Org, v.User = door.Org, known.User
	return nil
}

// visitorOf is whom the handshake let in: the one of the key that was proven, not of another one that was asked about.
func visitorOf(c *ssh.ServerConn) Visitor {
	v, _ := c.Permissions.ExtraData[visitorKey{}].(Visitor)
	return v
}

// record writes what the visitor does to a rank into the audit log. What cannot be recorded is not done.
func (g *Gateway) record(ctx context.Context, v Visitor, action string, rank int, more map[string]any) error {
	detail := map[string]any{"node": rank}
	if v.Key != "" {
		detail["key"] = v.Key
	}
	for k, x := range more {
		detail[k] = x
	}
	return g.cfg.Clusters.RecordAccess(ctx, cluster.Access{
		Org:     v.Org,
		User:    v.User,
		Token:   v.Token,
		Cluster: v.Cluster,
		Action:  action,
		Detail:  detail,
		Address: v.Address,
	})
}

// PublicKeys are the host keys as lines of a known_hosts file, without the address.
func PublicKeys(keys []ssh.Signer) []string {
	out := make([]string, len(keys))
	for i, k := range keys {
		out[i] = strings.TrimSpace(string(ssh.MarshalAuthorizedKey(k.PublicKey())))
	}
	return out
}
