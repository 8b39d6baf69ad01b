// Package dialback gets streams from hosts: it asks a host to dial back to this very replica, which it does by
// WebSocket, so that flow control is TCP's and NATS carries none of it.
//
// What always holds: a ticket names host, lease, epoch and purpose, lives TicketTTL in this replica's memory, and works
// once; a stream is handed out only after one of the host's valid link keys signed for that ticket.
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

// Config of a Dialer.
type Config struct {
	// StreamURL is where agents reach this very replica: https://name[:port], without a path. Empty: Open fails.
	StreamURL string
	TicketTTL time.Duration // 0 = TicketTTL
	Log       *slog.Logger
}

// Dialer opens streams and takes the dialled ones. Safe for concurrent use.
type Dialer struct {
	cfg Config
	db  *db.DB
	bus *bus.Bus

	mu      sync.Mutex
	tickets map[[sha256.Size]byte]*ticket // by hash: comparing tickets takes no time an attacker could measure
}

// ticket is one stream that is waited for.
type ticket struct {
	host   id.Host
	stream chan *Stream
	failed chan error    // the agent cannot serve it
	over   chan struct{} // closed when nobody waits any more
}

// New makes a Dialer. Mount it at agentapi.StreamPath of the listener StreamURL names.
func New(d *db.DB, b *bus.Bus, cfg Config) *Dialer {
	if cfg.TicketTTL == 0 {
		cfg.TicketTTL = TicketTTL
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	return &Dialer{cfg: cfg, db: d, bus: b, tickets: map[[sha256.Size]byte]*ticket{}}
}

// Open asks the host for a stream, filling in URL and Ticket of d, and waits for it until ctx ends or TicketTTL has
// passed. A host that is away, silent or unwilling is fault.Unavailable. The stream outlives ctx; the caller closes it.
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

// take gives out a ticket, once.
func (x *Dialer) take(secret string) *ticket {
	key := sha256.Sum256([]byte(secret))
	x.mu.Lock()
	defer x.mu.Unlock()
	t := x.tickets[key]
	delete(x.tickets, key)
	return t
}

// peek is the host a ticket is for.
func (x *Dialer) peek(secret string) (id.Host, bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	t := x.tickets[sha256.Sum256([]byte(secret))]
	if t == nil {
		return id.Host{}, false
	}
	return t.host, true
}
