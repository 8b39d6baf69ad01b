// Package dialback gets streams from hosts. It requests a host to dial back to this replica by WebSocket, so that TCP
// provides flow control and no stream data goes over NATS.
//
// Invariants: A ticket is for one host, lease, epoch and purpose. It is valid for TicketTTL, exists only in this
// replica's memory, and works once. A stream is returned to the caller only after one of the host's valid link keys has
// signed for its ticket.
package dialback

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/bus"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
)

// TicketTTL is how long a host has to dial back.
const TicketTTL = 30 * time.Second

// Config configures a Dialer.
type Config struct {
	// StreamURL is the address at which agents reach this replica: https://name[:port], without a path. If it is empty,
	// Open fails.
	StreamURL string
	TicketTTL time.Duration // 0 = TicketTTL
	Log       *slog.Logger
}

// Dialer opens streams and accepts the connections of hosts that dial back. It is safe for concurrent use.
type Dialer struct {
	cfg Config
	db  *db.DB
	bus *bus.Bus

	mu      sync.Mutex
	tickets map[[sha256.Size]byte]*ticket // by hash, so that a lookup's duration reveals nothing about a ticket
}

// ticket is one stream that a caller is waiting for.
type ticket struct {
	host   id.Host
	stream chan *Stream
	failed chan error    // receives the agent's error
	over   chan struct{} // closed when the caller stops waiting
}

// New returns a Dialer. Register it as the handler of agentapi.StreamPath on the listener that StreamURL refers to.
func New(d *db.DB, b *bus.Bus, cfg Config) *Dialer {
	if cfg.TicketTTL == 0 {
		cfg.TicketTTL = TicketTTL
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	return &Dialer{cfg: cfg, db: d, bus: b, tickets: map[[sha256.Size]byte]*ticket{}}
}

// Open requests a stream from the host. It sets URL and Ticket of d and waits for the stream until ctx is done or
// TicketTTL has passed. It returns fault.Unavailable if the host is unreachable, does not respond or refuses. The
// stream outlives ctx; the caller must close it.
func (x *Dialer) Open(ctx context.Context, host id.Host, d agentapi.Dial) (*Stream, error) {
	if x.cfg.StreamURL == "" {
		return nil, fault.New(fault.Unavailable, "This server has no address for hosts to dial back to.")
	}
	secret := make([]byte, 32)
	rand.Read(secret)
	d.Ticket = base64.RawURLEncoding.EncodeToString(secret)
	d.URL = "ws" + strings.TrimPrefix(strings.TrimRight(x.cfg.StreamURL, "/"), "http") + agentapi.StreamPath

	t := &ticket{host: host, stream: make(chan *Stream), failed: make(chan error), over: make(chan struct{})}
	key := sha256.Sum256([]byte(d.Ticket))
	x.mu.Lock()
	x.tickets[key] = t
	x.mu.Unlock()
	defer func() {
		x.mu.Lock()
		delete(x.tickets, key)
		x.mu.Unlock()
		close(t.over)
	}()

	wait, cancel := context.WithTimeout(ctx, x.cfg.TicketTTL)
	defer cancel()
	away := make(chan struct{})
	go func() {
		if err := x.bus.Dial(wait, host, d); err != nil && wait.Err() == nil {
			if !errors.Is(err, bus.ErrAway) {
				x.cfg.Log.Warn("cannot ask a host to dial back", "host", host, "err", err)
			}
			close(away)
		}
	}()
	select {
	case s := <-t.stream:
		return s, nil
	case err := <-t.failed:
		return nil, err
	case <-away:
		return nil, fault.New(fault.Unavailable, "The host is not connected at the moment.")
	case <-wait.Done():
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		return nil, fault.New(fault.Unavailable, "The host did not answer in time.")
	}
}

// take returns and removes a ticket, so that it works only once. It returns nil if there is none.
func (x *Dialer) take(secret string) *ticket {
	key := sha256.Sum256([]byte(secret))
	x.mu.Lock()
	defer x.mu.Unlock()
	t := x.tickets[key]
	delete(x.tickets, key)
	return t
}

// peek returns the host that a ticket is for.
func (x *Dialer) peek(secret string) (id.Host, bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	t := x.tickets[sha256.Sum256([]byte(secret))]
	if t == nil {
		return id.Host{}, false
	}
	return t.host, true
}
