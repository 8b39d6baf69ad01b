// Package devstack runs the whole platform on one machine, for development, demonstrations and end-to-end tests: a
// private PostgreSQL, an image registry with the demo image, the server, and local hosts.
//
// Invariants:
//   - Only what must be simulated is: hosts are real muster-agent processes enrolled by token, with real containers on
//     the machine's Docker engine; only the GPUs are simulated, by the fake NVML library, and their hosts are marked as
//     simulated.
//   - Everything that it needs to resume is in the state folder. A new start with that folder finds its data, its ports
//     and its running hosts; after kill -9 it adopts what still runs.
//   - Stopped in order, it leaves no process, container, network or firewall rule behind.
package devstack

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"time"
)

// Config configures a platform.
type Config struct {
	Dir         string // state folder, created if absent
	Listen      string // pages and REST, host:port; port 0 = any, kept over restarts
	Hosts       int
	GPUsPerHost int
	GPU         string // model name as NVML reports it
	Price       string // per GPU-hour of every local host
	ScratchGB   int64  // scratch that every local host offers, in its folder; 0 = none
	Bin         string // folder of muster-agent, muster-guest, muster-demo-job, fakenvml/
	Start       StartServer
	Log         *slog.Logger
	Progress    io.Writer // reports steps to people
}

// StartServer starts a server with the given parameters; the command that wires the server provides it.
type StartServer func(ctx context.Context, p ServerParams) (Server, error)

// ServerParams says where the server listens and which services it uses.
type ServerParams struct {
	DatabaseURL, Secret                      string
	Listen, AgentListen, NATSListen, Metrics string
	GatewayListen                            string
	RelayListen                              string // UDP
	TLSCert, TLSKey, TLSCA                   string
	DemoImage                                string // what the built-in templates start
	Bin, Releases                            string // folder of the agent's programs, and where its release is packed
	Store                                    string // folder of volumes' packs
	SandboxFile                              string // where earlier versions stored the state of the fake Stripe
}

// Server is a running control plane.
type Server interface {
	URL() string
	AgentURL() string
	GatewayAddr() string
	// Account ensures that an account exists and returns a new API token for it.
	Account(ctx context.Context, email, name, password string, admin bool) (token string, err error)
	// Enrollment returns a one-time token of the operator for a host with the given name.
	Enrollment(ctx context.Context, operatorToken, name string) (token string, err error)
	// SetPrice sets the price of the operator's host per GPU-hour.
	SetPrice(ctx context.Context, operatorToken, host, price string) error
	// Connected reports whether the operator's host is connected and has reported.
	Connected(ctx context.Context, operatorToken, host string) (bool, error)
	// ReleaseAll releases every cluster and waits until the hosts have cleaned up, or ctx ends.
	ReleaseAll(ctx context.Context) error
	Close(ctx context.Context) error
}

// Info describes a running platform. It is stored in DIR/dev.json.
type Info struct {
	URL           string `json:"url"`
	AgentURL      string `json:"agent_url"`
	GatewayAddr   string `json:"gateway_addr"` // host:port of the SSH gateway
	PostgresURL   string `json:"postgres_url"`
	RenterToken   string `json:"renter_token"`
	OperatorToken string `json:"operator_token"`
	AdminToken    string `json:"admin_token"`
	DemoImage     string `json:"demo_image"`
	RenterEmail   string `json:"renter_email"`
	OperatorEmail string `json:"operator_email"`
	AdminEmail    string `json:"admin_email"`
	Password      string `json:"password"` // password of the three local accounts
	PID           int    `json:"pid"`
}

// Stack is a running platform.
type Stack struct {
	Info   Info
	cfg    Config
	state  *state
	pg     *postgres
	server Server
	// release ends what runs and waits for it; nil while there are no hosts.
	release func(context.Context) error
	closed  []func(context.Context) error // called in reverse order
}

// Start starts everything and writes DIR/dev.json last. If it fails it stops what it had started.
func Start(ctx context.Context, cfg Config) (up *Stack, err error) {
	if err := os.MkdirAll(cfg.Dir, 0o711); err != nil {
		return nil, err
	}
	if cfg.Dir, err = filepath.Abs(cfg.Dir); err != nil {
		return nil, err
	}
	held, err := lock(cfg.Dir)
	if err != nil {
		return nil, err
	}
	s := &Stack{cfg: cfg}
	s.onClose(func(context.Context) error { return held.Close() })
	defer func() {
		if err != nil {
			down, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
			defer cancel()
			err = errors.Join(err, s.Close(down))
		}
	}()
	if s.state, err = loadState(cfg.Dir); err != nil {
		return nil, err
	}
	if g := s.state.guard; g != nil {
		s.onClose(func(context.Context) error { return g.Close() })
	}
	for _, step := range []struct {
		say string
		do  func(context.Context) error
	}{
		{"PostgreSQL", s.startPostgres},
		{"image registry and demo image", s.startRegistry},
		{"server", s.startServer},
		{"accounts", s.makeAccounts},
		{fmt.Sprintf("%d hosts with %d × %s", cfg.Hosts, cfg.GPUsPerHost, cfg.GPU), s.startHosts},
	} {
		began := time.Now()
		if err = step.do(ctx); err != nil {
			return nil, fmt.Errorf("%s: %w", step.say, err)
		}
		fmt.Fprintf(cfg.Progress, "  %-48s %6.1f s\n", step.say, time.Since(began).Seconds())
	}
	return s, s.writeInfo()
}

func (s *Stack) onClose(f func(context.Context) error) { s.closed = append(s.closed, f) }

const (
	releaseLimit = time.Minute      // time for clusters to end and hosts to clean up
	closeLimit   = 30 * time.Second // time for each part to stop
)

// Close releases the clusters, stops everything, and leaves the data. ctx limits only how long the release takes: each
// part has its own time to stop, so that a slow part or an impatient user leaves nothing running.
func (s *Stack) Close(ctx context.Context) error {
	_ = os.Remove(s.infoPath())
	var errs []error
	within := func(ctx context.Context, limit time.Duration, f func(context.Context) error) {
		ctx, cancel := context.WithTimeout(ctx, limit)
		defer cancel()
		errs = append(errs, f(ctx))
	}
	if s.release != nil {
		within(ctx, releaseLimit, s.release)
	}
	for i := len(s.closed) - 1; i >= 0; i-- {
		within(context.WithoutCancel(ctx), closeLimit, s.closed[i])
	}
	s.release, s.closed = nil, nil
	return errors.Join(errs...)
}

func (s *Stack) infoPath() string { return filepath.Join(s.cfg.Dir, "dev.json") }

func (s *Stack) writeInfo() error {
	s.Info.PID = os.Getpid()
	b, err := json.MarshalIndent(s.Info, "", "  ")
	if err != nil {
		return err
	}
	return writeFile(s.infoPath(), append(b, '\n'))
}

func (s *Stack) startPostgres(ctx context.Context) (err error) {
	s.pg, err = newPostgres(s.state.Postgres.Data, s.state.Postgres.Port, s.cfg.Log)
	if err != nil {
		return err
	}
	s.onClose(s.pg.stop)
	s.Info.PostgresURL = s.pg.URL()
	if err := s.pg.start(ctx); err != nil {
		return err
	}
	watching, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		s.pg.supervise(watching)
	}()
	s.onClose(func(context.Context) error { // before the server is stopped in order, or it would be started again
		cancel()
		<-stopped
		return nil
	})
	return nil
}

func (s *Stack) startServer(ctx context.Context) error {
	certs, err := EnsureCertificates(filepath.Join(s.cfg.Dir, "tls"))
	if err != nil {
		return err
	}
	listen, err := s.listen()
	if err != nil {
		return err
	}
	s.server, err = s.cfg.Start(ctx, ServerParams{
		DatabaseURL:   s.pg.URL(),
		Secret:        s.state.Secret,
		Listen:        listen,
		AgentListen:   local(s.state.Ports.Agent),
		NATSListen:    local(s.state.Ports.NATS),
		Metrics:       local(s.state.Ports.Metrics),
		GatewayListen: local(s.state.Ports.Gateway),
		RelayListen:   local(s.state.Ports.Relay),
		TLSCert:       certs.Cert,
		TLSKey:        certs.Key,
		TLSCA:         certs.CA,
		SandboxFile:   filepath.Join(s.cfg.Dir, "stripe.json"),
		DemoImage:     s.Info.DemoImage,
		Bin:           s.cfg.Bin,
		Releases:      filepath.Join(s.cfg.Dir, "releases"),
		Store:         filepath.Join(s.cfg.Dir, "store"),
	})
	if err != nil {
		return err
	}
	s.onClose(s.server.Close)
	s.Info.URL, s.Info.AgentURL, s.Info.GatewayAddr = s.server.URL(), s.server.AgentURL(), s.server.GatewayAddr()
	return nil
}

// listen returns the address for people. Port 0 becomes a port that stays the same over restarts, so that open pages
// and clients continue to work.
func (s *Stack) listen() (string, error) {
	host, port, err := net.SplitHostPort(s.cfg.Listen)
	if err != nil {
		return "", fmt.Errorf("--listen: %w", err)
	}
	if port == "0" {
		port = strconv.Itoa(s.state.Ports.People)
	}
	return net.JoinHostPort(host, port), nil
}

// These are the three users of a local platform. Their password is generated at the first start and stored in the state
// folder.
const (
	renterEmail   = "renter@muster.example"
	operatorEmail = "operator@muster.example"
	adminEmail    = "admin@muster.example"
)

func (s *Stack) makeAccounts(ctx context.Context) error {
	a := &s.state.Accounts
	for _, p := range []struct {
		email, name string
		admin       bool
		token       *string
	}{
		{renterEmail, "northlight-lab", false, &a.RenterToken},
		{operatorEmail, "local-hosts", false, &a.OperatorToken},
		{adminEmail, "platform", true, &a.AdminToken},
	} {
		if *p.token != "" {
			continue
		}
		token, err := s.server.Account(ctx, p.email, p.name, a.Password, p.admin)
		if err != nil {
			return fmt.Errorf("%s: %w", p.email, err)
		}
		*p.token = token
		if err := s.state.save(); err != nil {
			return err
		}
	}
	s.Info.RenterToken, s.Info.OperatorToken, s.Info.AdminToken = a.RenterToken, a.OperatorToken, a.AdminToken
	s.Info.RenterEmail, s.Info.OperatorEmail, s.Info.AdminEmail = renterEmail, operatorEmail, adminEmail
	s.Info.Password = a.Password
	return nil
}
