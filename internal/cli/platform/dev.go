package platform

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

	"github.com/musterhq/muster/internal/devstack"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/notify"
	"github.com/musterhq/muster/internal/server"
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
	fs.Int64Var(&f.scratch, "scratch-gb", 8,
		"GB that each local host offers for scratch and volumes, in the state folder (0: none, and no volumes)")
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
		Dir:         f.state,
		Listen:      f.listen,
		Hosts:       f.hosts,
		GPUsPerHost: f.gpus,
		GPU:         f.gpu,
		Price:       f.price,
		ScratchGB:   f.scratch,
		Bin:         f.bin,
		Start: func(ctx context.Context, p devstack.ServerParams) (devstack.Server, error) {
			return server.StartDev(ctx, p, devMailer{cmd.ErrOrStderr()}, cmd.Root().Version, log)
		},
		Log:      log,
		Progress: cmd.ErrOrStderr(),
	}, nil
}

// devCommand is muster dev.
func devCommand() *cobra.Command {
	var f devFlags
	var down string
	cmd := &cobra.Command{
		Use:   "dev",
		Short: "Run the whole platform on this machine",
		Long: `Run the whole platform on this machine: a private PostgreSQL, an image registry, the server with the
sandbox Stripe, and local hosts that are real agents with simulated GPUs.

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
func runDev(ctx context.Context, cfg devstack.Config, say io.Writer,
	journey func(context.Context, devstack.Info) (done bool, err error)) error {
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
		fmt.Fprintf(say, "\nDashboard  %s\nSign in    as %s, %s or %s\nPassword   %s\n"+
			"Shells     ssh CLUSTER@%s -p %s\nCtrl-C stops everything.\n",
			s.Info.URL, s.Info.RenterEmail, s.Info.OperatorEmail, s.Info.AdminEmail, s.Info.Password, host, port)
		<-ctx.Done()
	}
	fmt.Fprintln(say, "==> stopping: releasing what runs, cleaning up")
	return errors.Join(err, s.Close(impatient))
}

// signalsTogether is how long signals count as one: a terminal, sudo and the script that started us may each send
// theirs, and the kernel one for every thread of a parent that dies.
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
type devMailer struct{ out io.Writer }

func (d devMailer) Send(_ context.Context, m notify.Mail) error {
	line := "mail to " + m.To + ": " + m.Subject
	for text := range strings.Lines(m.Body) { // the link to follow has a line of its own; others are only named
		if link := strings.TrimSpace(text); strings.HasPrefix(link, "http://") || strings.HasPrefix(link, "https://") {
			line += "\n  " + link
			break
		}
	}
	_, err := fmt.Fprintln(d.out, line)
	return err
}
