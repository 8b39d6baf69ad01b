package host

import (
	"context"
	"fmt"
	"time"

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
	db       *db.DB
	bus      *bus.Bus // may be nil
	links    *db.Gather[string, dbq.LinksByKeysRow]
	sessions *db.Gather[opening, int64]
	contacts *db.Gather[contact, *Report]
	agents   *db.Gather[contact, knownAgent]
}

// When a fleet arrives, its connections are looked up and stored in sets.
const (
	gatherSets   = 2
	gatherAtOnce = 500
	gatherFor    = 10 * time.Second
)

// NewAgents returns Agents. It starts no goroutines that outlive its calls.
func NewAgents(d *db.DB, b *bus.Bus) *Agents {
	a := &Agents{db: d, bus: b}
	a.links = db.NewGather(gatherSets, gatherAtOnce, gatherFor, a.findLinks)
	a.sessions = db.NewGather(gatherSets, gatherAtOnce, gatherFor, a.openSessions)
	a.contacts = db.NewGather(gatherSets, storeAtOnce, storeWithin, a.recordContacts)
	a.agents = db.NewGather(gatherSets, storeAtOnce, storeWithin, a.storeAgents)
	return a
}

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
	k, err := a.links.Do(ctx, linkKey)
	if err != nil {
		return Link{}, fmt.Errorf("look up link key: %w", err)
	}
	if k.HostID.IsZero() {
		return Link{}, refused(fault.Unauthorized, "key_unknown", "No host has this link key.")
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
	n, err := a.sessions.Do(ctx, opening{l, c})
	if err != nil {
		return 0, fmt.Errorf("open session of %s: %w", l.Host, err)
	}
	if n == 0 {
		return 0, refused(fault.Conflict, "second_connection", "Another connection with this key is being made.")
	}
	a.bus.Changed(bus.TopicHost(l.Host), bus.TopicOrg(l.Org))
	return n, nil
}

// findLinks returns what is stored of link keys; the zero row for a key that no host has.
func (a *Agents) findLinks(ctx context.Context, keys []string) ([]dbq.LinksByKeysRow, error) {
	rows, err := a.db.Q.LinksByKeys(ctx, keys)
	if err != nil {
		return nil, err
	}
	by := make(map[string]dbq.LinksByKeysRow, len(rows))
	for _, r := range rows {
		by[r.LinkKey] = r
	}
	out := make([]dbq.LinksByKeysRow, len(keys))
	for i, k := range keys {
		out[i] = by[k]
	}
	return out, nil
}

// opening is a connection that is to become its host's own.
type opening struct {
	link Link
	conn Conn
}

// openSessions returns the numbers of the sessions of those connections that have become their hosts' own, 0 of others.
func (a *Agents) openSessions(ctx context.Context, all []opening) ([]int64, error) {
	var p dbq.OpenHostSessionsParams
	for _, o := range all {
		p.Hosts, p.Previous = append(p.Hosts, id.UUIDs(o.link.Host)...), append(p.Previous, o.link.Session)
		p.NatsServers = append(p.NatsServers, o.conn.Server)
		p.NatsClients = append(p.NatsClients, int64(o.conn.Client))
		p.Instances = append(p.Instances, text.Clip(o.conn.Instance, 64))
		p.Addresses = append(p.Addresses, text.Clip(o.conn.Address, 64))
	}
	type chosen struct {
		host   id.Host
		server string
		client int64
	}
	var numbers map[chosen]int64
	err := a.db.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		rows, err := tx.Q.OpenHostSessions(ctx, p)
		numbers = make(map[chosen]int64, len(rows))
		for _, r := range rows {
			numbers[chosen{r.HostID, r.NatsServer, r.NatsClient}] = r.Session
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	out := make([]int64, len(all))
	for i, o := range all {
		out[i] = numbers[chosen{o.link.Host, o.conn.Server, int64(o.conn.Client)}]
	}
	return out, nil
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
