package platform

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"time"

	natsserver "github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/bus"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/fleet/cluster"
	"github.com/musterhq/muster/internal/fleet/host"
	"github.com/musterhq/muster/internal/fleet/market"
	"github.com/musterhq/muster/internal/fleet/template"
	"github.com/musterhq/muster/internal/heap"
	"github.com/musterhq/muster/internal/nouns"
	"github.com/musterhq/muster/internal/seal"
	"github.com/musterhq/muster/internal/serve/api"
)

// Server is one replica of the real control plane: the REST face over the real nouns, a bus over an embedded NATS
// server, listening on loopback.
type Server struct {
	DB   *db.DB
	Addr string // host:port

	http *http.Server
	nats *natsserver.Server
}

// Serve starts a replica on the database at the given address, with a pool of so many connections. The process collects
// garbage as a server does from then on.
func Serve(ctx context.Context, at string, conns int32) (*Server, error) {
	heap.Tune()
	d, err := db.Open(ctx, db.Config{URL: at, MaxConns: conns})
	if err != nil {
		return nil, err
	}
	s := &Server{DB: d}
	b, err := s.startBus()
	if err == nil {
		err = s.startHTTP(b)
	}
	if err != nil {
		s.Stop()
		return nil, err
	}
	return s, nil
}

// unlimited is a rate limit that is counted and never reached.
const unlimited = 1 << 30

func (s *Server) startHTTP(b *bus.Bus) error {
	box, err := seal.NewBox(bytes.Repeat([]byte{7}, 32))
	if err != nil {
		return err
	}
	log := slog.New(slog.NewTextHandler(io.Discard, nil))
	m, err := market.New(s.DB, box, market.Config{Currency: Currency, AllowSimulated: true})
	if err != nil {
		return err
	}
	face := api.New(api.Config{
		Currency:         Currency,
		Version:          "bench",
		Sandbox:          true,
		AddressPerMinute: unlimited,
		CallerPerMinute:  unlimited,
	}, api.Deps{
		Nouns: nouns.Nouns{
			Accounts:  account.New(s.DB, account.Config{}),
			Market:    m,
			Hosts:     host.New(s.DB, b),
			Clusters:  cluster.New(s.DB, m, b, cluster.Config{Currency: Currency, Box: box, Log: log}),
			Templates: template.New(s.DB, ""),
		},
		Database: s.DB,
		Bus:      b,
		Box:      box,
		Log:      log,
	})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	s.Addr = l.Addr().String()
	s.http = &http.Server{Handler: face, ReadHeaderTimeout: 10 * time.Second}
	go func() { _ = s.http.Serve(l) }() // ends with Stop
	return nil
}

// startBus runs NATS in this process, as the server does by default.
func (s *Server) startBus() (*bus.Bus, error) {
	n, err := natsserver.NewServer(&natsserver.Options{DontListen: true, NoSigs: true, NoLog: true})
	if err != nil {
		return nil, err
	}
	s.nats = n
	n.Start()
	if !n.ReadyForConnections(10 * time.Second) {
		return nil, errors.New("the embedded NATS server did not start")
	}
	hosts, err := nats.Connect("", nats.InProcessServer(n))
	if err != nil {
		return nil, err
	}
	replicas, err := nats.Connect("", nats.InProcessServer(n))
	if err != nil {
		return nil, err
	}
	return bus.New(hosts, replicas), nil
}

// Stop ends it and closes its database.
func (s *Server) Stop() {
	if s.http != nil {
		_ = s.http.Close()
	}
	if s.nats != nil {
		s.nats.Shutdown()
	}
	s.DB.Close()
}
