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

// Conn is one connection to a NATS server.
type Conn struct {
	Server   string // NATS server's id
	Client   uint64 // connection's number there
	Instance string // the agent's run, see agentapi.ConnectionName; "" = unknown
	Address  string // where it comes from
}

// Link is a host as known by its link key.
type Link struct {
	Host      id.Host
	Org       id.Org
	Name      string
	Session   int64 // number of the last accepted connection
	Connected bool  // as far as is known: the server that held Conn may have died with it
	Conn      Conn  // of that session
}

// VerifyLink finds the host whose link key signed the connection's nonce. Refusals are fault.Unauthorized with
// Extra["reason"]: bad_signature, key_unknown, key_revoked.
func VerifyLink(ctx context.Context, q *dbq.Queries, linkKey string, nonce, signature []byte) (Link, error) {
	key, err := nkeys.FromPublicKey(linkKey)
	if err != nil || !nkeys.IsValidPublicUserKey(linkKey) || len(nonce) == 0 || key.Verify(nonce, signature) != nil {
		return Link{}, refused(fault.Unauthorized, "bad_signature", "The connection's nonce is not signed by its key.")
	}
	k, err := q.LinkByKey(ctx, linkKey)
	if db.NoRows(err) {
		return Link{}, refused(fault.Unauthorized, "key_unknown", "No host has this link key.")
	}
	if err != nil {
		return Link{}, fmt.Errorf("host: look up link key: %w", err)
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

// OpenSession makes c the host's connection and returns its session number. l is as VerifyLink found it: when another
// connection was accepted since, it is fault.Conflict.
func OpenSession(ctx context.Context, q *dbq.Queries, l Link, c Conn) (int64, error) {
	n, err := q.OpenHostSession(ctx, dbq.OpenHostSessionParams{
		HostID: l.Host, Previous: l.Session, NatsServer: c.Server, NatsClient: int64(c.Client),
		Instance: text.Clip(c.Instance, 64), Address: text.Clip(c.Address, 64),
	})
	if db.NoRows(err) {
		return 0, refused(fault.Conflict, "second_connection", "Another connection with this key is being made.")
	}
	if err != nil {
		return 0, fmt.Errorf("host: open session of %s: %w", l.Host, err)
	}
	return n, nil
}

// CloseSession notes that a connection ended. It is false when it was not the host's present one.
func CloseSession(ctx context.Context, q *dbq.Queries, host id.Host, server string, client uint64) (bool, error) {
	_, err := q.CloseHostSession(ctx, server, int64(client), host)
	if db.NoRows(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("host: close session of %s: %w", host, err)
	}
	return true, nil
}

// LinkKeys is the host's valid link keys.
func LinkKeys(ctx context.Context, q *dbq.Queries, host id.Host) ([]string, error) {
	keys, err := q.HostLinkKeys(ctx, host)
	if err != nil {
		return nil, fmt.Errorf("host: link keys of %s: %w", host, err)
	}
	return keys, nil
}

// Unwelcome is a connected host none of whose keys is valid any more.
type Unwelcome struct {
	Host id.Host
	Conn Conn
}

// UnwelcomeHosts lists connections that must be closed.
func UnwelcomeHosts(ctx context.Context, q *dbq.Queries) ([]Unwelcome, error) {
	rows, err := q.ConnectedWithoutKey(ctx)
	if err != nil {
		return nil, fmt.Errorf("host: connections without a key: %w", err)
	}
	out := make([]Unwelcome, len(rows))
	for i, r := range rows {
		out[i] = Unwelcome{r.HostID, Conn{Server: r.NatsServer, Client: uint64(r.NatsClient)}}
	}
	return out, nil
}

// RevokeKeys makes all keys of a host invalid for ever and has its connection closed after the commit. b may be nil:
// the connection is then closed by the next sweep.
func RevokeKeys(ctx context.Context, tx *db.Tx, b *bus.Bus, host id.Host) error {
	if err := tx.Q.RevokeHostKeys(ctx, host); err != nil {
		return fmt.Errorf("host: revoke keys of %s: %w", host, err)
	}
	tx.AfterCommit(func() { b.Changed(bus.TopicKeys(host)) })
	return nil
}

// CloseSessions notes that a NATS server ends, and with it all its connections.
func CloseSessions(ctx context.Context, q *dbq.Queries, server string) error {
	if _, err := q.CloseServerSessions(ctx, server); err != nil {
		return fmt.Errorf("host: close sessions of NATS server %s: %w", server, err)
	}
	return nil
}

// PresentConn is the host's connection, and whether there is one.
func PresentConn(ctx context.Context, q *dbq.Queries, host id.Host) (Conn, bool, error) {
	r, err := q.HostConnection(ctx, host)
	if err != nil {
		return Conn{}, false, fmt.Errorf("host: connection of %s: %w", host, err)
	}
	return Conn{Server: r.NatsServer, Client: uint64(r.NatsClient)}, r.Connected, nil
}
