package hostlink_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go"

	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/fleet/cluster"
	"github.com/musterhq/muster/internal/fleet/host"
	"github.com/musterhq/muster/internal/fleet/market"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/serve/hostlink"
	"github.com/musterhq/muster/internal/testing/dbtest"
	"github.com/musterhq/muster/internal/testing/fleettest"
)

var secret = []byte("a platform secret for tests, 32+ bytes")

// patience bounds every wait for something that must happen.
const patience = time.Minute

// fakeWorld stands for packages cluster and metering, and for what is popular.
type fakeWorld struct {
	*market.Market
	clusters *cluster.Clusters

	mu         sync.Mutex
	observed   []agentapi.Sync
	gone       []id.Lease
	observeErr error
	ingestErr  error
	envBytes   int // of the state that comes with a wake
}

func (w *fakeWorld) ApplyReport(_ context.Context, _ id.Host, s agentapi.Sync, gone []id.Lease) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.observed, w.gone = append(w.observed, s), append(w.gone, gone...)
	return w.observeErr
}

// HostState is the real one of a host without leases, but with one to run.
func (w *fakeWorld) HostState(ctx context.Context, h id.Host, s agentapi.Sync) (cluster.HostState, error) {
	v, err := w.clusters.Hosts.HostState(ctx, h, s)
	v.Extensions = []agentapi.LeaseExtension{{RunUntilMS: 42, RelayToken: "renewed"}}
	if v.Desired != nil {
		v.Desired.Leases = []agentapi.LeaseSpec{{Image: "wanted"}}
	}
	return v, err
}

// WakeState has the same lease as HostState.
func (w *fakeWorld) WakeState(ctx context.Context, h id.Host) (*agentapi.Desired, error) {
	d, err := w.clusters.Hosts.WakeState(ctx, h)
	if d != nil {
		d.Leases = []agentapi.LeaseSpec{{Image: "wanted", Env: map[string]string{"SIZE": strings.Repeat("x", w.envBytes)}}}
	}
	return d, err
}

func (w *fakeWorld) Ingest(_ context.Context, _ id.Host, segs []agentapi.Segment,
	_ []byte) ([]agentapi.UsageAck, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ingestErr != nil {
		return nil, w.ingestErr
	}
	last := segs[len(segs)-1]
	return []agentapi.UsageAck{{
		LeaseRef: agentapi.LeaseRef{Lease: last.Lease, Epoch: last.Epoch},
		BootID:   last.BootID,
		Through:  last.Seq,
	}}, nil
}

func (w *fakeWorld) IssueAnchor(_ context.Context, _ id.Host, boot string, ms int64) (*agentapi.Anchor, error) {
	return &agentapi.Anchor{BootID: boot, Number: 1, BootMS: ms, ServerMS: ms + 5}, nil
}

func (w *fakeWorld) fail(observe, ingest error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.observeErr, w.ingestErr = observe, ingest
}

// config is a link on free ports of loopback.
func config() hostlink.Config {
	return hostlink.Config{
		Secret: secret, Name: "localhost", Listen: "127.0.0.1:0", WebSocketListen: "127.0.0.1:0",
		StreamURL: "https://localhost:1", Origins: []string{fleettest.Origin}, AllowSimulated: true,
		HeartbeatEvery: 50 * time.Millisecond, FlushEvery: 20 * time.Millisecond, Log: slog.New(slog.DiscardHandler),
	}
}

// start opens a link that takes hosts until the test ends.
func start(t *testing.T, d *db.DB, cfg hostlink.Config) (*hostlink.Link, *fakeWorld) {
	t.Helper()
	l, err := hostlink.Open(t.Context(), host.NewReplicas(d), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := l.Stop(ctx); err != nil {
			t.Error(err)
		}
	})
	return l, letIn(t, d, l)
}

// letIn starts a link on a fake world.
func letIn(t *testing.T, d *db.DB, l *hostlink.Link) *fakeWorld {
	t.Helper()
	m, err := market.New(d, nil, market.Config{Currency: "USD", AllowSimulated: true})
	if err != nil {
		t.Fatal(err)
	}
	w := &fakeWorld{Market: m, clusters: cluster.New(d, m, nil, cluster.Config{Currency: "USD"})}
	agents := host.NewAgents(d, l.Bus())
	if err := l.Start(hostlink.Domain{Agents: agents, Clusters: w, Metering: w, Market: w}); err != nil {
		t.Fatal(err)
	}
	return w
}

// site is one link with one org.
type site struct {
	t    *testing.T
	d    *db.DB
	link *hostlink.Link
	w    *fakeWorld
	org  id.Org
	user id.User
}

func newSite(t *testing.T) *site {
	t.Helper()
	s := &site{t: t, d: dbtest.New(t)}
	s.org, s.user = fleettest.Org(t, s.d)
	s.link, s.w = start(t, s.d, config())
	return s
}

// agent is a host's end of the link.
type agent struct {
	*fleettest.Agent
	t        *testing.T
	nc       *nats.Conn
	instance string
	wakes    chan agentapi.Wake
	errs     chan error
	closed   chan struct{}
}

// enroll makes a host and connects it.
func (s *site) enroll() *agent {
	s.t.Helper()
	a := &agent{Agent: fleettest.Enroll(s.t, s.d, s.org, s.user, 2), t: s.t, instance: uuid.NewString()}
	if err := a.connect(s.link); err != nil {
		s.t.Fatal(err)
	}
	return a
}

// connect tries once, without reconnecting.
func (a *agent) connect(l *hostlink.Link, opts ...nats.Option) error {
	urls, ca, err := l.AgentURLs()
	if err != nil {
		return err
	}
	return a.dial(urls[0], ca, opts...)
}

func (a *agent) dial(url, ca string, opts ...nats.Option) error {
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM([]byte(ca))
	a.wakes, a.errs, a.closed = make(chan agentapi.Wake, 16), make(chan error, 16), make(chan struct{})
	closed, errs, wakes := a.closed, a.errs, a.wakes
	h := a.Host.String()
	nc, err := nats.Connect(url, append([]nats.Option{
		func(o *nats.Options) error { // a test's external NATS has no TLS
			o.Secure, o.TLSConfig = !strings.HasPrefix(url, "nats:"), &tls.Config{RootCAs: pool}
			return nil
		},
		nats.Nkey(a.LinkKey(), a.Link.Sign),
		nats.Name(agentapi.ConnectionName(a.instance)),
		nats.CustomInboxPrefix(agentapi.InboxPrefix(h)),
		nats.NoReconnect(),
		nats.Timeout(patience),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { errs <- err }),
		nats.ClosedHandler(func(*nats.Conn) { close(closed) }),
	}, opts...)...)
	if err != nil {
		return err
	}
	a.nc = nc
	a.t.Cleanup(nc.Close)
	if _, err := nc.Subscribe(agentapi.SubjectWake(h), func(m *nats.Msg) {
		var w agentapi.Wake
		if json.Unmarshal(m.Data, &w) == nil {
			wakes <- w
		}
	}); err != nil {
		return err
	}
	return nc.Flush()
}

func (a *agent) request(subject string, req, reply any) {
	a.t.Helper()
	if err := request(a.nc, subject, req, reply); err != nil {
		a.t.Fatalf("%s: %v", subject, err)
	}
}

func request(nc *nats.Conn, subject string, req, reply any) error {
	data, err := json.Marshal(req)
	if err != nil {
		return err
	}
	if w, ok := req.(wire); ok {
		data = []byte(w)
	}
	m, err := nc.Request(subject, data, patience)
	if err != nil {
		return err
	}
	return json.Unmarshal(m.Data, reply)
}

func (a *agent) sync(s agentapi.Sync) agentapi.SyncReply {
	a.t.Helper()
	s.Protocol, s.BootID, s.ControlEpoch = agentapi.Protocol, "boot", max(1, s.ControlEpoch)
	var r agentapi.SyncReply
	a.request(agentapi.SubjectSync(a.Host.String()), s, &r)
	return r
}

// eventually polls until cond is true.
func eventually(t *testing.T, what string, cond func() bool) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for !cond() {
		if time.Now().After(deadline) {
			t.Fatalf("never: %s", what)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// within waits for one value.
func within[T any](t *testing.T, what string, c <-chan T) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(patience):
		t.Fatalf("never: %s", what)
		panic("unreachable")
	}
}

func (s *site) count(sql string, args ...any) (n int) {
	s.t.Helper()
	if err := s.d.Pool.QueryRow(s.t.Context(), sql, args...).Scan(&n); err != nil {
		s.t.Fatal(err)
	}
	return n
}

func (s *site) alerts(action string) int {
	return s.count("SELECT count(*) FROM audit_event a JOIN notice n ON n.object = a.object WHERE a.action = $1", action)
}

func (s *site) host(a *agent) host.Host {
	s.t.Helper()
	h, err := host.Read(s.t.Context(), s.d.Q, a.Host)
	if err != nil {
		s.t.Fatal(err)
	}
	return h
}

var errBroken = errors.New("broken on purpose")

func (*fakeWorld) PopularFor(context.Context, id.Host, []string) ([]string, int64, error) {
	return []string{"index.docker.io/library/popular:1"}, 0, nil
}
