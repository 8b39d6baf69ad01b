package fleet

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"runtime/pprof"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	natsserver "github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/musterhq/muster/bench/platform"
	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/billing/metering"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/fleet/cluster"
	"github.com/musterhq/muster/internal/fleet/host"
	"github.com/musterhq/muster/internal/fleet/market"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/metrics"
	"github.com/musterhq/muster/internal/serve/hostlink"
)

// server is what the hosts connect to.
type server interface {
	// start listens on a port of loopback and returns the address, and the CA that verifies it.
	start(ctx context.Context, port int) (address, ca string, err error)
}

// ServerCalls is what the process of a server does when it is called.
type ServerCalls struct {
	server server
	db     *db.DB // nil of the bare server
}

// Starting is a server that is to start.
type Starting struct {
	Database string // URL; "": the bare server
	Port     int    // 0: a free one
	Identity []byte // of the bare server, so that the next one has the same
	Watchdog bool   // clusters are tended
}

// Started is a server that hosts can connect to.
type Started struct{ Address, CA string }

// Start starts the server.
func (s *ServerCalls) Start(a Starting, out *Started) (err error) {
	ctx := context.Background()
	if a.Database == "" {
		s.server, err = newBare(a.Identity)
	} else if s.db, err = db.Open(ctx, db.Config{URL: a.Database, MaxConns: 32}); err == nil {
		s.server = &ours{db: s.db, watchdog: a.Watchdog}
	}
	if err != nil {
		return err
	}
	out.Address, out.CA, err = s.server.start(ctx, a.Port)
	return err
}

// Usage returns what the process has used, with its memory if that is wanted.
func (s *ServerCalls) Usage(memory bool, u *Usage) error {
	*u = usage(memory)
	return nil
}

// Profile writes a profile of the processor time from now on to a file, or ends it if the name is empty.
func (s *ServerCalls) Profile(file string, _ *None) error {
	if file == "" {
		pprof.StopCPUProfile()
		return nil
	}
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	return pprof.StartCPUProfile(f) // the file is complete once the profile has ended
}

// Messages returns what happened to hosts' messages, by kind and result.
func (s *ServerCalls) Messages(_ None, out *map[string]float64) error {
	all, err := metrics.Gatherer().Gather()
	*out = map[string]float64{}
	for _, f := range all {
		if f.GetName() != "muster_host_messages_total" {
			continue
		}
		for _, m := range f.GetMetric() {
			key := ""
			for _, l := range m.GetLabel() {
				key += " " + l.GetValue()
			}
			(*out)[key[1:]] = m.GetCounter().GetValue()
		}
	}
	return err
}

// Ready does what /readyz does.
func (s *ServerCalls) Ready(None, *None) error {
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
	defer cancel()
	if err := s.db.Ping(ctx); err != nil {
		return err
	}
	return errors.Join(s.db.SchemaReady(ctx), s.server.(*ours).link.NATSReady(ctx))
}

// Wake changes the desired state of hosts, so many a second, and wakes them. It returns when each change was committed,
// in Unix ns. A change raises the host's revision, as a rent does.
func (s *ServerCalls) Wake(hosts []id.Host, committed *[]int64) error {
	at := make([]int64, len(hosts))
	_, err := platform.Paced(context.Background(), waking, len(hosts), wakesPerSecond,
		func(ctx context.Context, _, i int) error {
			return s.db.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
				b := &pgx.Batch{}
				tx.AfterCommit(func() { at[i] = time.Now().UnixNano() }) // before the wake, which is queued next
				host.QueueRevision(b, tx, s.server.(*ours).link.Bus(), hosts[i:i+1])
				return tx.Send(ctx, b)
			})
		})
	*committed = at
	return err
}

// ours is the hosts' face of a replica.
type ours struct {
	db       *db.DB
	link     *hostlink.Link
	watchdog bool
}

func (o *ours) start(ctx context.Context, port int) (address, ca string, err error) {
	o.link, err = hostlink.Open(ctx, host.NewReplicas(o.db), hostlink.Config{
		Secret: []byte("the secret of a platform that is only measured"), Name: "localhost",
		Listen:    net.JoinHostPort("127.0.0.1", strconv.Itoa(port)),
		StreamURL: "https://localhost:1", AllowSimulated: true,
		ReportContext:  func(ctx context.Context) context.Context { return db.For(ctx, db.Reports) },
		ConnectContext: func(ctx context.Context) context.Context { return db.For(ctx, db.Connections) },
	})
	if err != nil {
		return "", "", err
	}
	m, err := market.New(o.db, nil, market.Config{Currency: platform.Currency, AllowSimulated: true})
	if err != nil {
		return "", "", err
	}
	clusters := cluster.New(o.db, m, o.link.Bus(), cluster.Config{Currency: platform.Currency})
	err = o.link.Start(hostlink.Domain{
		Agents:   host.NewAgents(o.db, o.link.Bus()),
		Clusters: clusters.Hosts,
		Metering: metering.NewCollector(o.db),
		Market:   m,
		Quiet:    cluster.NewQuietReports(clusters.Hosts),
	})
	if err != nil {
		return "", "", err
	}
	if o.watchdog {
		go tend(context.WithoutCancel(ctx), clusters.Watchdog)
	}
	urls, ca, err := o.link.AgentURLs()
	return urls[0], ca, err
}

// tend lets the watchdog look at clusters as the worker does, until the process ends.
func tend(ctx context.Context, w *cluster.Watchdog) {
	for {
		if r, err := w.Pass(ctx); err != nil || r.Failed > 0 {
			fmt.Fprintln(os.Stderr, "watchdog:", r.Failed, "clusters could not be tended:", err)
		}
		time.Sleep(watchdogPause)
	}
}

// bare is a NATS server with TLS and without authorisation, and a responder that accepts everything at once.
type bare struct {
	cert tls.Certificate
	ca   string
	ns   *natsserver.Server
	nc   *nats.Conn
}

// newIdentity returns a key and its certificate for a bare server.
func newIdentity() ([]byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	c := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, DNSNames: []string{"localhost"},
	}
	der, err := x509.CreateCertificate(rand.Reader, c, c, key.Public(), key)
	if err != nil {
		return nil, err
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, err
	}
	return append(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private})...), nil
}

// newBare returns a server with that identity.
func newBare(identity []byte) (*bare, error) {
	cert, err := tls.X509KeyPair(identity, identity)
	if err != nil {
		return nil, err
	}
	block, _ := pem.Decode(identity)
	return &bare{cert: cert, ca: string(pem.EncodeToMemory(block))}, nil
}

func (b *bare) start(_ context.Context, port int) (address, ca string, err error) {
	if port == 0 {
		port = natsserver.RANDOM_PORT
	}
	b.ns, err = natsserver.NewServer(&natsserver.Options{
		Host: "127.0.0.1", Port: port, NoSigs: true, NoLog: true, AlwaysEnableNonce: true,
		TLSConfig: &tls.Config{Certificates: []tls.Certificate{b.cert}, MinVersion: tls.VersionTLS12}, TLSTimeout: 10,
	})
	if err != nil {
		return "", "", err
	}
	b.ns.Start()
	if !b.ns.ReadyForConnections(10 * time.Second) {
		return "", "", errors.New("the bare NATS server did not start")
	}
	if b.nc, err = nats.Connect("", nats.InProcessServer(b.ns)); err != nil {
		return "", "", err
	}
	accept := func(m *nats.Msg) {
		var s agentapi.Sync
		if json.Unmarshal(m.Data, &s) == nil {
			if reply, err := json.Marshal(agentapi.SyncReply{StatusAck: s.Seq}); err == nil {
				_ = m.Respond(reply)
			}
		}
	}
	for _, subject := range []string{agentapi.SubjectSync("*"), agentapi.SubjectInventory("*")} {
		if _, err := b.nc.Subscribe(subject, accept); err != nil {
			return "", "", err
		}
	}
	return "tls://" + b.ns.Addr().String(), b.ca, b.nc.Flush()
}
