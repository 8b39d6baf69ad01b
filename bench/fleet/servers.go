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
	"math/big"
	"net"
	"strconv"
	"time"

	natsserver "github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/musterhq/muster/bench/platform"
	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/billing/metering"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/fleet/cluster"
	"github.com/musterhq/muster/internal/fleet/host"
	"github.com/musterhq/muster/internal/fleet/market"
	"github.com/musterhq/muster/internal/serve/hostlink"
)

// server is what the hosts connect to.
type server interface {
	// start listens on a port of loopback and returns the address, and the CA that verifies it.
	start(ctx context.Context, port int) (address, ca string, err error)
	stop(ctx context.Context) error
}

// ours is the hosts' face of a replica.
type ours struct {
	db   *db.DB
	link *hostlink.Link
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
		Clusters: clusters,
		Metering: metering.NewCollector(o.db),
		Market:   m,
		Quiet:    cluster.NewQuietReports(clusters),
	})
	if err != nil {
		return "", "", err
	}
	urls, ca, err := o.link.AgentURLs()
	return urls[0], ca, err
}

func (o *ours) stop(ctx context.Context) error { return o.link.Stop(ctx) }

// bare is a NATS server with TLS and without authorisation, and a responder that accepts everything at once.
type bare struct {
	cert tls.Certificate
	ca   string
	ns   *natsserver.Server
	nc   *nats.Conn
}

func newBare() (*bare, error) {
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
	return &bare{
		cert: tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key},
		ca:   string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})),
	}, nil
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

func (b *bare) stop(context.Context) error {
	b.nc.Close()
	b.ns.Shutdown()
	b.ns.WaitForShutdown()
	return nil
}
