package link

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"encoding/json"
	"errors"
	"log/slog"
	mathrand "math/rand/v2"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/fault"
)

// Handlers are called from the connection's own goroutines, one message at a time per kind. They must not block.
type Handlers struct {
	Wake func(agentapi.Wake)
	Dial func(agentapi.Dial)
	Up   func() // called after every connect: the server does not know what happened in between
}

// Conn is the connection to the control plane. While it is down, requests fail at once and are repeated later.
type Conn struct {
	id   *Identity
	nc   *nats.Conn // nil before Start
	log  *slog.Logger
	host string

	mu   sync.Mutex
	lost chan struct{} // closed when the current connection is lost
}

// New returns a connection that is not started: all requests fail as if it were down.
func New(i *Identity, log *slog.Logger) *Conn {
	return &Conn{id: i, log: log, host: i.Host.String(), lost: make(chan struct{})}
}

// Start starts connecting and returns at once, because a host may be up before its control plane. It fails only if the
// identity is unusable.
func (c *Conn) Start(h Handlers) error {
	opts, err := c.options(h)
	if err != nil {
		return err
	}
	nc, err := opts.Connect()
	if err != nil {
		return fault.Wrap(err, fault.Invalid, "the control plane's addresses are not usable")
	}
	err = errors.Join(subscribe(c, nc, agentapi.SubjectWake(c.host), h.Wake),
		subscribe(c, nc, agentapi.SubjectDial(c.host), h.Dial))
	if err != nil {
		nc.Close()
		return fault.Wrap(err, fault.Internal, "subscribe")
	}
	c.nc = nc
	return nil
}

func (c *Conn) options(h Handlers) (nats.Options, error) {
	opts := nats.GetDefaultOptions()
	roots, err := pool(c.id.NATSCA)
	if err != nil {
		return opts, err
	}
	public, err := c.id.link.PublicKey()
	if err != nil {
		return opts, fault.Wrap(err, fault.Internal, "read the link key")
	}
	log := c.log
	opts.Servers = spread(oneKind(c.id.NATS), c.host)
	opts.Name = agentapi.ConnectionName(rand.Text()) // lets the server distinguish a reconnect from a copy of this host
	opts.Nkey, opts.SignatureCB = public, c.id.link.Sign
	opts.TLSConfig = &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}
	opts.Secure = true
	opts.InboxPrefix = agentapi.InboxPrefix(c.host)
	opts.AllowReconnect, opts.RetryOnFailedConnect = true, true
	opts.MaxReconnect = -1           // without limit
	opts.IgnoreAuthErrorAbort = true // a server that is being restored may not know this host for a while
	opts.NoRandomize = true          // in the host's own order: see spread
	opts.ReconnectBufSize = -1       // messages from before the outage are stale: the next sync replaces them
	opts.PingInterval, opts.MaxPingsOut = 10*time.Second, 2
	opts.Timeout, opts.CustomDialer = connectTimeout, &net.Dialer{Timeout: dialTimeout}
	opts.CustomReconnectDelayCB = delay
	opts.ConnectedCB = func(*nats.Conn) { log.Info("connected"); h.Up() }
	opts.ReconnectedCB = func(*nats.Conn) { log.Info("connected again"); h.Up() }
	opts.DisconnectedErrCB = func(_ *nats.Conn, err error) {
		log.Warn("connection lost", "err", err)
		c.mu.Lock()
		defer c.mu.Unlock()
		close(c.lost)
		c.lost = make(chan struct{})
	}
	opts.ReconnectErrCB = func(_ *nats.Conn, err error) { log.Debug("cannot connect", "err", err) }
	opts.AsyncErrorCB = func(_ *nats.Conn, _ *nats.Subscription, err error) { log.Warn("the server objects", "err", err) }
	return opts, nil
}

// oneKind returns the addresses of the first one's kind: the library uses either WebSocket or plain TLS on one
// connection.
func oneKind(addresses []string) []string {
	var out []string
	for _, a := range addresses {
		if strings.HasPrefix(a, "ws") == strings.HasPrefix(addresses[0], "ws") {
			out = append(out, a)
		}
	}
	return out
}

// spread returns the addresses in the order in which a host tries them. Each host has an order of its own, so that
// hosts spread evenly over the servers, and those of a server that dies spread over the others. A host's order stays
// the same.
func spread(addresses []string, host string) []string {
	weight := func(address string) [sha256.Size]byte { return sha256.Sum256([]byte(host + "\n" + address)) }
	return slices.SortedFunc(slices.Values(addresses), func(a, b string) int {
		x, y := weight(a), weight(b)
		return bytes.Compare(x[:], y[:])
	})
}

// dialTimeout limits the time until a server accepts a connection, and connectTimeout the rest of an attempt: a server
// to which all hosts connect at once lets connections wait for up to 40 s, and takes seconds to authorise them.
const (
	dialTimeout    = 10 * time.Second
	connectTimeout = time.Minute
)

// delay returns the wait before the given round of connecting, the first being 1: it doubles from 2 s to 6 s, and is
// randomised so that hosts that lost one server do not all connect to the next at once. A server that has more to do
// than it can lets connections wait, and closes further ones at little cost.
func delay(attempts int) time.Duration {
	d := min(time.Second<<min(max(attempts, 1), 10), 6*time.Second)
	return d/2 + mathrand.N(d)
}

func subscribe[T any](c *Conn, nc *nats.Conn, subject string, f func(T)) error {
	_, err := nc.Subscribe(subject, func(m *nats.Msg) {
		var v T
		if err := json.Unmarshal(m.Data, &v); err != nil {
			c.log.Warn("message not understood", "subject", subject, "err", err)
			return
		}
		f(v)
	})
	return err
}

// Up reports whether the connection is established.
func (c *Conn) Up() bool { return c.nc != nil && c.nc.IsConnected() }

// waitHeader is the header with which a request states how long it waits for its reply.
var waitHeader = nats.Header{
	agentapi.HeaderWait: {strconv.FormatInt(agentapi.RequestWait.Milliseconds(), 10)},
}

func call[T any](ctx context.Context, c *Conn, subject string, req any) (reply T, err error) {
	b, err := agentapi.Encode(req)
	if err != nil {
		return reply, fault.Wrap(err, fault.Internal, "write a request")
	}
	if !c.Up() {
		return reply, fault.New(fault.Unavailable, "no connection to the control plane")
	}
	c.mu.Lock()
	lost := c.lost
	c.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, agentapi.RequestWait)
	defer cancel()
	go func() { // the reply to a lost connection never comes: do not wait for it
		select {
		case <-lost:
			cancel()
		case <-ctx.Done():
		}
	}()
	m, err := c.nc.RequestMsgWithContext(ctx, &nats.Msg{Subject: subject, Data: b, Header: waitHeader})
	if errors.Is(err, nats.ErrMaxPayload) {
		return reply, fault.Wrap(err, fault.TooLarge, "a message of %d bytes is larger than the link carries", len(b))
	}
	if err != nil {
		return reply, fault.Wrap(err, fault.Unavailable, "the control plane does not answer")
	}
	if err := json.Unmarshal(m.Data, &reply); err != nil {
		return reply, fault.Wrap(err, fault.Unavailable, "the control plane's answer is not understood")
	}
	return reply, nil
}

// Sync sends a report and returns the reply. If the host sends too many, the error is an *agentapi.TooMany; any other
// reply whose Error is set is returned as it is.
func (c *Conn) Sync(ctx context.Context, s agentapi.Sync) (agentapi.SyncReply, error) {
	reply, err := call[agentapi.SyncReply](ctx, c, agentapi.SubjectSync(c.host), s)
	if err == nil {
		err = agentapi.TooManyIn(reply.RetryMS)
	}
	return reply, err
}

// Inventory sends what the host has. If the host sends too many, the error is an *agentapi.TooMany; any other refusal
// is an Unavailable fault.
func (c *Conn) Inventory(ctx context.Context, inv agentapi.Inventory) error {
	ack, err := call[agentapi.Ack](ctx, c, agentapi.SubjectInventory(c.host), inv)
	if err == nil {
		err = agentapi.TooManyIn(ack.RetryMS)
	}
	if err == nil && ack.Error != "" {
		err = fault.New(fault.Unavailable, "the control plane refused the inventory: %s", ack.Error)
	}
	return err
}

// Volume sends a request about a volume. If the host sends too many, the error is an *agentapi.TooMany. A refusal is an
// *agentapi.VolumeError.
func (c *Conn) Volume(ctx context.Context, r agentapi.VolumeRequest) (agentapi.VolumeReply, error) {
	reply, err := call[agentapi.VolumeReply](ctx, c, agentapi.SubjectVolume(c.host), r)
	if err == nil {
		err = agentapi.TooManyIn(reply.RetryMS)
	}
	if err == nil && reply.AckError != "" {
		err = fault.New(fault.Unavailable, "the control plane refused a request about a volume: %s", reply.AckError)
	}
	if err == nil && reply.Error != nil {
		err = reply.Error
	}
	return reply, err
}

// Telemetry sends samples; samples sent while the connection is down are lost.
func (c *Conn) Telemetry(t agentapi.Telemetry) error {
	if !c.Up() {
		return fault.New(fault.Unavailable, "no connection to the control plane")
	}
	b, err := agentapi.Encode(t)
	if err != nil {
		return fault.Wrap(err, fault.Internal, "write telemetry")
	}
	if err := c.nc.Publish(agentapi.SubjectTelemetry(c.host), b); err != nil {
		return fault.Wrap(err, fault.Unavailable, "send telemetry")
	}
	return nil
}

// Close closes the connection after sending what was queued.
func (c *Conn) Close() {
	if c.nc == nil {
		return
	}
	if c.nc.IsConnected() {
		if err := c.nc.FlushTimeout(time.Second); err != nil {
			c.log.Debug("flush", "err", err)
		}
	}
	c.nc.Close()
}
