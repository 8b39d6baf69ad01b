package hostlink

import (
	"context"
	"fmt"
	"strings"

	"github.com/musterhq/muster/internal/fleet/host"
)

// beat records that this replica is running.
func (l *Link) beat(ctx context.Context) error {
	return l.all.Beat(ctx, host.Replica{
		ID: l.replica, Name: l.cfg.Name, StreamURL: l.cfg.StreamURL, RouteURL: l.cfg.RouteURL,
	})
}

// NATSReady reports which of this replica's connections to NATS are down, for /readyz. It is nil if there are none.
func (l *Link) NATSReady(context.Context) error {
	var down []string
	for _, c := range []struct {
		role string
		up   bool
	}{{"hosts", l.hosts.IsConnected()}, {"replicas", l.replicas.IsConnected()}, {"authentication", l.auth.IsConnected()}} {
		if !c.up {
			down = append(down, c.role)
		}
	}
	if len(down) > 0 {
		return fmt.Errorf("no connection to NATS for: %s", strings.Join(down, ", "))
	}
	return nil
}

// Unready returns the reasons for which hosts cannot reach this replica although NATS works, for /readyz. It is empty
// if there are none.
func (l *Link) Unready(ctx context.Context) []string {
	var why []string
	live, err := l.all.Live(ctx)
	if err != nil {
		return append(why, "the list of replicas cannot be read")
	}
	if len(live) < 2 {
		return why
	}
	if l.cfg.StreamURL == "" {
		why = append(why, fmt.Sprintf("%d replicas run and this one has no stream URL of its own: hosts cannot dial back "+
			"to it (set --advertise-stream-url)", len(live)))
	}
	if l.ns != nil && (l.cfg.RouteListen == "" || l.cfg.RouteURL == "") {
		why = append(why, fmt.Sprintf("%d replicas run, each with an embedded NATS that does not know the others: hosts "+
			"of one cannot be reached from another (set --nats-routes, or --nats-url)", len(live)))
	}
	return why
}
