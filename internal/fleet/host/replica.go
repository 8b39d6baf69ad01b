package host

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/id"
)

// Replicas manages the list of running servers that hosts connect to. It is safe for concurrent use.
type Replicas struct{ db *db.DB }

// NewReplicas returns Replicas. It starts no goroutines.
func NewReplicas(d *db.DB) *Replicas { return &Replicas{db: d} }

// Replica is one running server.
type Replica struct {
	ID        id.Replica
	Name      string // for display
	StreamURL string // address for hosts' dial-back, https://name[:port]; "" = none
	RouteURL  string // NATS route address for other replicas; "" = none
}

// Beat records that a replica is running, and removes replicas whose last beat is more than ten minutes old.
func (r *Replicas) Beat(ctx context.Context, v Replica) error {
	err := r.db.Q.PutReplica(ctx, dbq.PutReplicaParams{
		ID: v.ID, Name: v.Name, StreamURL: v.StreamURL, NatsRoute: v.RouteURL,
	})
	if err == nil {
		err = r.db.Q.PruneReplicas(ctx)
	}
	if err != nil {
		return fmt.Errorf("heartbeat of a replica: %w", err)
	}
	return nil
}

// Live returns the replicas whose last beat is at most 30 seconds old.
func (r *Replicas) Live(ctx context.Context) ([]Replica, error) {
	rows, err := r.db.Q.LiveReplicas(ctx)
	if err != nil {
		return nil, fmt.Errorf("list replicas: %w", err)
	}
	out := make([]Replica, len(rows))
	for i, v := range rows {
		out[i] = Replica{ID: v.ID, Name: v.Name, StreamURL: v.StreamURL, RouteURL: v.NatsRoute}
	}
	return out, nil
}

// Remove removes a replica that stops, and records that the connections of its embedded NATS server have ended.
// natsServer is that server's id, or "" if the replica has none.
func (r *Replicas) Remove(ctx context.Context, replica id.Replica, natsServer string) (err error) {
	if natsServer != "" {
		_, err = r.CloseSessions(ctx, natsServer)
	}
	return errors.Join(err, r.db.Q.RemoveReplica(ctx, replica))
}

// SilentServers returns the ids of NATS servers that hosts count as connected to although neither a pulse nor a report
// has come through them for two minutes. Such a server is gone, or the database could not be reached.
func (r *Replicas) SilentServers(ctx context.Context) ([]string, error) {
	servers, err := r.db.Q.SilentServers(ctx)
	if err != nil {
		return nil, fmt.Errorf("list silent NATS servers: %w", err)
	}
	return servers, nil
}

// CloseSessions records that a NATS server is gone, and with it the connections of its hosts. It returns the number of
// hosts.
func (r *Replicas) CloseSessions(ctx context.Context, natsServer string) (hosts int64, err error) {
	if hosts, err = r.db.Q.CloseServerSessions(ctx, natsServer); err != nil {
		return 0, fmt.Errorf("close sessions of NATS server %s: %w", natsServer, err)
	}
	return hosts, nil
}

// ControlEpoch returns the database's control epoch and the time on PostgreSQL's clock. A person raises the control
// epoch after restoring the database.
func (r *Replicas) ControlEpoch(ctx context.Context) (epoch int64, now time.Time, err error) {
	at, err := r.db.Q.ControlEpoch(ctx)
	if err != nil {
		return 0, now, fmt.Errorf("control epoch: %w", err)
	}
	return at.ControlEpoch, at.Now, nil
}
