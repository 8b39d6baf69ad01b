package host

import (
	"context"
	"fmt"

	"github.com/nats-io/nkeys"

	"github.com/musterhq/muster/internal/bus"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/text"
)

// Agents implements the use cases of hosts' agents: connecting, and reporting inventory, health and leases. It is safe
// for concurrent use.
type Agents struct {
	db  *db.DB
	bus *bus.Bus // may be nil
}

// NewAgents returns Agents. It starts no goroutines.
func NewAgents(d *db.DB, b *bus.Bus) *Agents { return &Agents{db: d, bus: b} }

// Conn is one connection to a NATS server.
type Conn struct {
	Server   string // NATS server's id
	Client   uint64 // number of the connection on that server
	Instance string // id of the agent's process, see agentapi.ConnectionName; "" = unknown
	Address  string // remote address
}

// Link is a host that was looked up by its link key.
type Link struct {
	Host      id.Host
	Org       id.Org
	Name      string
	Session   int64 // number of the last accepted connection
	Connected bool  // may be outdated: the server that held Conn may have crashed
	Conn      Conn  // connection of that session
}

// VerifyLink returns the host whose link key signed the connection's nonce. Refusals are fault.Unauthorized with
// Extra["reason"]: bad_signature, key_unknown, key_revoked.
func (a *Agents) VerifyLink(ctx context.Context, linkKey string, nonce, signature []byte) (Link, error) {
	key, err := nkeys.FromPublicKey(linkKey)
	if err != nil || !nkeys.IsValidPublicUserKey(linkKey) || len(nonce) == 0 || key.Verify(nonce, signature) != nil {
		return Link{}, refused(fault.Unauthorized, "bad_signature", "The connection's nonce is not signed by its key.")
	}
	k, err := a.db.Q.LinkByKey(ctx, linkKey)
	if db.NoRows(err) {
		return Link{}, refused(fault.Unauthorized, "key_unknown", "No host has this link key.")
	}
	if err != nil {
		return Link{}, fmt.Errorf("look up link key: %w", err)
	}
	l := Link{
		Host: k.HostID, Org: k.OrgID, Name: k.Name, Session: k.Session, Connected: k.Connected,
		Conn: Conn{Server: k.NatsServer, Client: uint64(k.NatsClient), Instance: k.Instance},
	}
	if k.RevokedAt != nil || k.State == string(Retired) {
		return l, refused(fault.Unauthorized, "key_revoked", "This host's key was revoked.")
	}
	return l, nil
}

// OpenSession makes c the host's connection and returns its session number. l comes from VerifyLink. Fault: Conflict if
// another connection was accepted since.
func (a *Agents) OpenSession(ctx context.Context, l Link, c Conn) (int64, error) {
	n, err := a.db.Q.OpenHostSession(ctx, dbq.OpenHostSessionParams{
		HostID: l.Host, Previous: l.Session, NatsServer: c.Server, NatsClient: int64(c.Client),
		Instance: text.Clip(c.Instance, 64), Address: text.Clip(c.Address, 64),
	})
	if db.NoRows(err) {
		return 0, refused(fault.Conflict, "second_connection", "Another connection with this key is being made.")
	}
	if err != nil {
		return 0, fmt.Errorf("open session of %s: %w", l.Host, err)
	}
	a.bus.Changed(bus.TopicHost(l.Host), bus.TopicOrg(l.Org))
	return n, nil
}

// CloseSession records that a connection ended. It returns false if the connection is not the host's current one.
func (a *Agents) CloseSession(ctx context.Context, host id.Host, server string, client uint64) (bool, error) {
	_, err := a.db.Q.CloseHostSession(ctx, server, int64(client), host)
	if db.NoRows(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("close session of %s: %w", host, err)
	}
	a.bus.Changed(bus.TopicHost(host))
	return true, nil
}

// LinkKeys returns the host's valid link keys.
func LinkKeys(ctx context.Context, q *dbq.Queries, host id.Host) ([]string, error) {
	keys, err := q.HostLinkKeys(ctx, host)
	if err != nil {
		return nil, fmt.Errorf("link keys of %s: %w", host, err)
	}
	return keys, nil
}

// Unwelcome is a connected host that has no valid key any more.
type Unwelcome struct {
	Host id.Host
	Conn Conn
}

// UnwelcomeHosts returns the connections that must be closed because their hosts have no valid key.
func (a *Agents) UnwelcomeHosts(ctx context.Context) ([]Unwelcome, error) {
	rows, err := a.db.Q.ConnectedWithoutKey(ctx)
	if err != nil {
		return nil, fmt.Errorf("connections without a key: %w", err)
	}
	out := make([]Unwelcome, len(rows))
	for i, r := range rows {
		out[i] = Unwelcome{r.HostID, Conn{Server: r.NatsServer, Client: uint64(r.NatsClient)}}
	}
	return out, nil
}

// RevokeKeys revokes all keys of a host permanently, and has its connection closed after the commit. If b is nil, the
// next sweep closes the connection.
func RevokeKeys(ctx context.Context, tx *db.Tx, b *bus.Bus, host id.Host) error {
	if err := tx.Q.RevokeHostKeys(ctx, host); err != nil {
		return fmt.Errorf("revoke keys of %s: %w", host, err)
	}
	tx.AfterCommit(func() { b.Changed(bus.TopicKeys(host)) })
	return nil
}
