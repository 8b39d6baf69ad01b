// Package stream dials the control plane and serves one stream per ticket.
//
// Invariants: connections go only to the domain fixed at enrolment, encrypted and verified; nothing is sent before the
// hello, which the link key has signed; a slow reader slows the reading of a log down and never the workload; at most
// MaxStreams are open, at most MaxPerLease of one lease, and a lease that has none gets one however many others have.
package stream

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/coder/websocket"

	"github.com/musterhq/muster/agent/slots"
	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/fault"
)

// MaxStreams is how many log streams are served at once, MaxPerLease how many of one lease; further ones are refused.
const (
	MaxStreams  = 32
	MaxPerLease = 8
)

// Source provides logs. It calls emit with every line in order; an error of emit ends the reading.
type Source interface {
	Logs(ctx context.Context, ref agentapi.LeaseRef, tail int, follow bool, emit func(agentapi.LogFrame) error) error
	KeptLog(ctx context.Context, ref agentapi.LeaseRef, emit func(agentapi.LogFrame) error) error
}

// Config configures a Dialer.
type Config struct {
	Host   string // prefixed id
	Domain string // EnrollReply.StreamDomain
	CA     string // PEM; "" = the system's roots
	Sign   func([]byte) ([]byte, error)
	Source Source
	// Shell serves a shell connection until it ends; nil: shells are not offered.
	Shell func(ctx context.Context, ref agentapi.LeaseRef, conn net.Conn) error
	Log   *slog.Logger
}

// Dialer serves tickets.
type Dialer struct {
	cfg    Config
	client *http.Client
	slots  *slots.Slots
}

// New returns a Dialer, or an error if cfg is invalid.
func New(cfg Config) (*Dialer, error) {
	tc := &tls.Config{MinVersion: tls.VersionTLS12}
	if cfg.CA != "" {
		tc.RootCAs = x509.NewCertPool()
		if !tc.RootCAs.AppendCertsFromPEM([]byte(cfg.CA)) {
			return nil, fault.New(fault.Invalid, "the CA for streams is not readable")
		}
	}
	return &Dialer{cfg: cfg, slots: slots.New(MaxStreams, MaxPerLease), client: &http.Client{
		Transport: &http.Transport{
			Proxy:               http.ProxyFromEnvironment,
			TLSClientConfig:     tc,
			TLSHandshakeTimeout: 10 * time.Second,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}, nil
}

// Allowed returns an error for addresses that are not under the domain fixed at enrolment.
func (d *Dialer) Allowed(address string) error {
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "wss" || u.User != nil {
		return fault.New(fault.Forbidden, "not a wss address")
	}
	host, domain := strings.ToLower(u.Hostname()), strings.ToLower(d.cfg.Domain)
	if domain == "" || (host != domain && !strings.HasSuffix(host, "."+domain)) {
		return fault.New(fault.Forbidden, "%s is not under %s, to which this host was enrolled", u.Hostname(), d.cfg.Domain)
	}
	return nil
}

// Serve serves a ticket and returns when its stream has ended. An error is for the log: the reader has received the
// reason.
func (d *Dialer) Serve(ctx context.Context, t agentapi.Dial) error {
	if err := d.Allowed(t.URL); err != nil {
		return err
	}
	if t.Purpose != agentapi.PurposeShell { // shells have a limit of their own
		release, ok := d.slots.Take(share(t))
		if !ok {
			return fault.New(fault.RateLimited, "%d streams are open already, or %d of the lease", MaxStreams, MaxPerLease)
		}
		defer release()
	}
	handshake, cancel := context.WithTimeout(ctx, 15*time.Second)
	defer cancel()
	ws, _, err := websocket.Dial(handshake, t.URL, &websocket.DialOptions{HTTPClient: d.client})
	if err != nil {
		return fault.Wrap(err, fault.Unavailable, "dial back")
	}
	defer ws.CloseNow()
	produce, refusal := d.producer(t)
	if err := d.hello(handshake, ws, t, refusal); err != nil {
		return fault.Wrap(err, fault.Unavailable, "say hello")
	}
	if refusal != "" {
		return ws.Close(websocket.StatusNormalClosure, "")
	}
	if t.Purpose == agentapi.PurposeShell {
		return d.cfg.Shell(ctx, t.LeaseRef, websocket.NetConn(ctx, ws, websocket.MessageBinary))
	}
	return d.copy(ctx, ws, produce)
}

// share returns the key under which a ticket takes a place. Kept logs, which the server fetches itself when a lease has
// ended, have a key of their own: readers that follow the log do not prevent its storage.
func share(t agentapi.Dial) string {
	if t.Purpose == agentapi.PurposeKeptLog {
		return t.Lease + "/kept"
	}
	return t.Lease
}

type producer func(ctx context.Context, emit func(agentapi.LogFrame) error) error

func (d *Dialer) producer(t agentapi.Dial) (p producer, refusal string) {
	switch t.Purpose {
	case agentapi.PurposeLogs:
		return func(ctx context.Context, emit func(agentapi.LogFrame) error) error {
			return d.cfg.Source.Logs(ctx, t.LeaseRef, t.Tail, t.Follow, emit)
		}, ""
	case agentapi.PurposeKeptLog:
		return func(ctx context.Context, emit func(agentapi.LogFrame) error) error {
			return d.cfg.Source.KeptLog(ctx, t.LeaseRef, emit)
		}, ""
	case agentapi.PurposeShell:
		if d.cfg.Shell != nil {
			return nil, ""
		}
	}
	return nil, "this agent does not know streams for " + t.Purpose
}

func (d *Dialer) hello(ctx context.Context, ws *websocket.Conn, t agentapi.Dial, refusal string) error {
	sig, err := d.cfg.Sign(agentapi.StreamProof(d.cfg.Host, t.Ticket))
	if err != nil {
		return err
	}
	b, err := json.Marshal(agentapi.StreamHello{Host: d.cfg.Host, Ticket: t.Ticket, Signature: sig, Error: refusal})
	if err != nil {
		return err
	}
	return ws.Write(ctx, websocket.MessageText, b)
}

// flushAfter is how long a line may wait to be sent together with others.
const flushAfter = 50 * time.Millisecond

// copy sends lines as they come, and several in one message if several are waiting. It ends when the log ends or the
// reader closes the connection.
func (d *Dialer) copy(ctx context.Context, ws *websocket.Conn, produce producer) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ctx = ws.CloseRead(ctx)        // cancelled when the reader closes
	lines := make(chan []byte, 16) // a line may have 64 kB, and more as JSON
	produced := make(chan error, 1)
	go func() {
		defer close(lines)
		produced <- produce(ctx, func(f agentapi.LogFrame) error {
			b, err := json.Marshal(f)
			if err != nil {
				return err
			}
			select {
			case lines <- append(b, '\n'):
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		})
	}()
	if err := send(ctx, ws, lines); err != nil {
		return err
	}
	switch err := <-produced; {
	case err == nil:
		return ws.Close(websocket.StatusNormalClosure, "")
	case errors.Is(err, context.Canceled):
		return nil // the reader has closed the connection
	default:
		return errors.Join(err, ws.Close(websocket.StatusInternalError, reason(err)))
	}
}

func send(ctx context.Context, ws *websocket.Conn, lines <-chan []byte) error {
	w := bufio.NewWriterSize(writerFunc(func(b []byte) (int, error) {
		return len(b),
			ws.Write(ctx, websocket.MessageBinary, b)
	}), 32<<10)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case b, more := <-lines:
			if !more {
				return w.Flush()
			}
			if w.Buffered() == 0 {
				timer.Reset(flushAfter)
			}
			if _, err := w.Write(b); err != nil {
				return err
			}
		case <-timer.C:
			if err := w.Flush(); err != nil {
				return err
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(b []byte) (int, error) { return f(b) }

// reason returns the reason of a failure for the reader; a closing frame holds 123 bytes.
func reason(err error) string {
	s := "the log cannot be read"
	if f := fault.From(err); f != nil {
		s = f.Message
	}
	return s[:min(len(s), 120)]
}
