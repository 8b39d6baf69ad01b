package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/cluster"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/devstack"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/host"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/market"
	"github.com/musterhq/muster/internal/money"
	"github.com/musterhq/muster/internal/notify"
)

// devFlags are what `muster dev` and `muster demo` share.
type devFlags struct {
	state, listen, gpu, price, bin, logLevel string
	hosts, gpus                              int
	scratch                                  int64
}

func (f *devFlags) register(cmd *cobra.Command) {
	fs := cmd.Flags()
	fs.StringVar(&f.state, "state", "/var/lib/muster-dev", "folder with everything that lasts")
	fs.StringVar(&f.listen, "listen", "127.0.0.1:8080", "address of the dashboard and the REST API")
	fs.IntVar(&f.hosts, "hosts", 2, "local hosts")
	fs.IntVar(&f.gpus, "gpus-per-host", 8, "simulated GPUs per host")
	fs.StringVar(&f.gpu, "gpu", "NVIDIA H100 80GB HBM3", "GPU model")
	fs.StringVar(&f.price, "price", "2.40", "price per GPU-hour of the local hosts")
	fs.Int64Var(&f.scratch, "scratch-gb", 0, "GB of scratch that each local host offers, in the state folder (0: none)")
	fs.StringVar(&f.bin, "bin", "", "folder of the other programs (default: beside this one)")
	fs.StringVar(&f.logLevel, "log-level", "WARN", "level of the server's log on stderr")
}

func (f *devFlags) config(cmd *cobra.Command) (devstack.Config, error) {
	var level slog.Level
	if err := level.UnmarshalText([]byte(f.logLevel)); err != nil {
		return devstack.Config{}, fault.InvalidField("log-level", "is DEBUG, INFO, WARN or ERROR")
	}
	if f.bin == "" {
		self, err := os.Executable()
		if err != nil {
			return devstack.Config{}, err
		}
		f.bin = filepath.Dir(self)
	}
	log := slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), &slog.HandlerOptions{Level: level}))
	return devstack.Config{
		Dir: f.state, Listen: f.listen, Hosts: f.hosts, GPUsPerHost: f.gpus, GPU: f.gpu, Price: f.price, ScratchGB: f.scratch, Bin: f.bin,
		Start: func(ctx context.Context, p devstack.ServerParams) (devstack.Server, error) {
			return startDevServer(ctx, p, devMailer{cmd.ErrOrStderr()}, log)
		},
		Log: log, Say: cmd.ErrOrStderr(),
	}, nil
}

// devCommand runs the whole platform on this machine.
func devCommand() *cobra.Command {
	var f devFlags
	var down string
	cmd := &cobra.Command{
		Use:   "dev",
		Short: "Run the whole platform on this machine",
		Long: `Run the whole platform on this machine: a private PostgreSQL, an image registry, the server with the sandbox
Stripe, and local hosts that are real agents with simulated GPUs.

DIR/dev.json is written once everything is ready. Ctrl-C releases what runs and leaves nothing behind but the data;
after a kill, starting again on the same folder adopts what still runs.

Mail is not sent but shown here, with its link: a new account's address is confirmed by opening it.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := f.config(cmd)
			if err != nil {
				return err
			}
			if down != "" {
				cfg.Dir = down
				return devstack.Down(cmd.Context(), cfg)
			}
			return runDev(cmd.Context(), cfg, cmd.ErrOrStderr(), nil)
		},
	}
	f.register(cmd)
	cmd.Flags().StringVar(&down, "down", "", "stop what runs on this folder and remove it with all its data")
	return cmd
}

// runDev serves until a signal; with a journey it plays that first, and ends after it when the journey says so.
func runDev(ctx context.Context, cfg devstack.Config, say io.Writer, journey func(context.Context, devstack.Info) (done bool, err error)) error {
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	ctx, impatient := urged(ctx, signals, signalsTogether)
	fmt.Fprintln(say, "==> starting the platform")
	s, err := devstack.Start(ctx, cfg)
	if err != nil {
		return err
	}
	done := false
	if journey != nil {
		done, err = journey(ctx, s.Info)
	}
	if err == nil && !done {
		host, port, _ := net.SplitHostPort(s.Info.GatewayAddr)
		fmt.Fprintf(say, "\nDashboard  %s\nSign in as %s with password %s\nShells     ssh CLUSTER@%s -p %s\nCtrl-C stops everything.\n",
			s.Info.URL, s.Info.RenterEmail, s.Info.Password, host, port)
		<-ctx.Done()
	}
	fmt.Fprintln(say, "==> stopping: releasing what runs, cleaning up")
	return errors.Join(err, s.Close(impatient))
}

// signalsTogether is how long signals count as one: a terminal, sudo and the script that started us may each send theirs,
// and the kernel one for every thread of a parent that dies.
const signalsTogether = 2 * time.Second

// urged ends ctx at the first signal, to stop in order, and impatient at the next one, to wait for no release and still
// clean up. A third ends this process and nothing else. Signals that come together are one.
func urged(parent context.Context, signals chan os.Signal, together time.Duration) (ctx, impatient context.Context) {
	ctx, first := context.WithCancel(parent)
	impatient, second := context.WithCancel(context.WithoutCancel(parent))
	go func() {
		for _, heed := range []func(){first, second} {
			<-signals
			heed()
			for over := time.After(together); over != nil; {
				select {
				case <-signals:
				case <-over:
					over = nil
				}
			}
		}
		signal.Stop(signals)
	}()
	return ctx, impatient
}

// devMailer shows mail instead of sending it: to whom, about what, and the link in it, which a new account needs.
type devMailer struct{ say io.Writer }

func (d devMailer) Send(_ context.Context, m notify.Mail) error {
	line := "mail to " + m.To + ": " + m.Subject
	for text := range strings.Lines(m.Body) { // the link to follow has a line of its own; others are only named
		if link := strings.TrimSpace(text); strings.HasPrefix(link, "http://") || strings.HasPrefix(link, "https://") {
			line += "\n  " + link
			break
		}
	}
	_, err := fmt.Fprintln(d.say, line)
	return err
}

// devServer is the server inside `muster dev`.
type devServer struct{ *app }

func startDevServer(ctx context.Context, p devstack.ServerParams, mail notify.Mailer, log *slog.Logger) (devstack.Server, error) {
	cfg, err := loadServerConfig(nil)
	if err != nil {
		return nil, err
	}
	cfg.DatabaseURL, cfg.Secret = secretText(p.DatabaseURL), secretText(p.Secret)
	cfg.Listen, cfg.AgentListen, cfg.NATSListen, cfg.MetricsListen = p.Listen, p.AgentListen, p.NATSListen, p.Metrics
	cfg.GatewayListen, cfg.AppsDomain = p.GatewayListen, localApps
	cfg.TLSCert, cfg.TLSKey, cfg.TLSCA = p.TLSCert, p.TLSKey, p.TLSCA
	cfg.SandboxFile = p.SandboxFile
	cfg.mail = mail
	cfg.RelayListen = p.RelayListen
	cfg.AllowSimulated = true
	cfg.SignUpsPerHour = 100_000 // everybody here comes from one address
	if err := cfg.complete(); err != nil {
		return nil, err
	}
	a, err := startApp(ctx, cfg, log)
	if err != nil {
		return nil, err
	}
	return devServer{a}, nil
}

func (s devServer) URL() string         { return s.cfg.PublicURL }
func (s devServer) AgentURL() string    { return s.cfg.AgentURL }
func (s devServer) GatewayAddr() string { return s.cfg.GatewayAddr }

// Account signs somebody up, or in when they are known already, and makes a token with all scopes.
func (s devServer) Account(ctx context.Context, email, name, password string, admin bool) (string, error) {
	p, err := s.accounts.Register(ctx, account.SignUp{Email: email, Name: name, Password: password})
	if fault.Is(err, fault.Conflict) {
		_, p, err = s.accounts.SignIn(ctx, account.SignIn{Email: email, Password: password})
	}
	if err != nil {
		return "", err
	}
	scopes := account.Scopes()
	if admin {
		if err := s.accounts.SetAdmin(ctx, email, true); err != nil {
			return "", err
		}
		scopes = append(scopes, account.ScopeAdmin)
		if _, p, err = s.accounts.SignIn(ctx, account.SignIn{Email: email, Password: password}); err != nil { // now as an admin
			return "", err
		}
	}
	_, secret, err := s.accounts.IssueToken(ctx, p, account.NewToken{Name: "muster dev", Scopes: scopes})
	return secret, err
}

func (s devServer) Enrollment(ctx context.Context, operatorToken, name string) (string, error) {
	p, err := s.accounts.TokenPrincipal(ctx, operatorToken)
	if err != nil {
		return "", err
	}
	var e host.Enrollment
	err = s.db.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		e, err = host.CreateEnrollment(ctx, tx, host.NewEnrollment{Org: p.Org, User: p.User, Name: name, Region: "local", Fabric: "loopback"})
		return err
	})
	return e.Token, err
}

func (s devServer) SetPrice(ctx context.Context, operatorToken, hostID, price string) error {
	p, h, err := s.operatorsHost(ctx, operatorToken, hostID)
	if err != nil {
		return err
	}
	m, err := money.ParseMicro(price)
	if err != nil {
		return fault.InvalidField("price", "%s", err)
	}
	return s.db.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		_, err := s.market.SetTerms(ctx, tx, p.Org, p.User, h, "", market.Terms{Price: &m})
		return err
	})
}

func (s devServer) Connected(ctx context.Context, operatorToken, hostID string) (bool, error) {
	p, h, err := s.operatorsHost(ctx, operatorToken, hostID)
	if err != nil {
		return false, err
	}
	d, err := host.Get(ctx, s.db.Q, p.Org, h)
	if err != nil || d.Status.LastSyncAt == nil {
		return false, err
	}
	// A status of before our start may still say "connected": the one that wrote it was killed.
	return d.Status.LastSyncAt.After(s.started) && d.Unsellable(time.Now()) == "", nil
}

func (s devServer) operatorsHost(ctx context.Context, operatorToken, hostID string) (account.Principal, id.Host, error) {
	p, err := s.accounts.TokenPrincipal(ctx, operatorToken)
	if err != nil {
		return p, id.Host{}, err
	}
	h, err := id.Parse[id.Host](hostID)
	return p, h, err
}

// ReleaseAll ends every cluster and waits until their hosts have cleaned up.
func (s devServer) ReleaseAll(ctx context.Context) error {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		left, err := s.releaseOnce(ctx)
		if err != nil || left == 0 {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%d clusters are still being cleaned up: %w", left, ctx.Err())
		case <-tick.C:
		}
	}
}

func (s devServer) releaseOnce(ctx context.Context) (left int, err error) {
	rows, err := s.db.Pool.Query(ctx, "SELECT id, org_id, state FROM cluster WHERE state NOT IN ('released', 'failed')")
	if err != nil {
		return 0, err
	}
	defer rows.Close()
	var live []cluster.Cluster
	for rows.Next() {
		var c cluster.Cluster
		var state string
		if err := rows.Scan(&c.ID, &c.Org, &state); err != nil {
			return 0, err
		}
		c.State = cluster.State(state)
		live = append(live, c)
	}
	if err := rows.Err(); err != nil {
		return 0, err
	}
	rows.Close()
	for _, c := range live {
		if c.State.Ended() {
			continue
		}
		if _, err := s.clusters.Release(ctx, account.Principal{Org: c.Org}, c.ID); err != nil {
			return len(live), err
		}
	}
	return len(live), nil
}
