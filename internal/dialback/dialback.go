// Package dialback gets streams from hosts: it asks a host to dial back to this very replica, which it does by
// WebSocket, so that flow control is TCP's and NATS carries none of it.
//
// What always holds: a ticket names host, lease, epoch and purpose, lives TicketTTL, and works once; a stream is handed
// out only after the host's link key signed for that ticket.
package dialback

import (
	"context"
	"io"
	"log/slog"
	"net/http"
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
	Log       *slog.Logger
}

// Dialer opens streams and takes the dialled ones.
type Dialer struct{}

// New makes a Dialer. Mount it at agentapi.StreamPath of the listener StreamURL names.
func New(d *db.DB, b *bus.Bus, cfg Config) *Dialer { return &Dialer{} }

// Stream is one stream from a host: what it sends is read, flow control included. Close ends it on both sides.
type Stream struct{ io.ReadWriteCloser }

// Open asks the host for a stream, filling in URL and Ticket of d, and waits for it until ctx ends or TicketTTL has
// passed. A host that is away, silent or unwilling is fault.Unavailable.
func (x *Dialer) Open(ctx context.Context, host id.Host, d agentapi.Dial) (*Stream, error) {
	return nil, fault.New(fault.Unavailable, "not built yet")
}

// ServeHTTP takes a host's stream.
func (x *Dialer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	http.Error(w, "not built yet", http.StatusServiceUnavailable)
}
