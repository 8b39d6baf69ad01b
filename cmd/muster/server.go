package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/ledger"
)

// serverCommand runs the control plane.
func serverCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "server",
		Short: "Run the control plane",
		Long: `Run one replica of the control plane: pages, REST, the link to hosts, and background work.

Settings come from the environment (MUSTER_…; see docs/operations.md). Secrets are read from there only.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch role, err := cmd.Flags().GetString("role"); {
			case err != nil:
				return err
			case role == roleRelay:
				cfg, err := loadServerConfig(environOf(cmd))
				if err != nil {
					return err
				}
				return runRelay(cmd.Context(), cfg, cmd.ErrOrStderr())
			case role != roleAll:
				return fault.InvalidField("--role", "is all or relay")
			}
			cfg, err := serverConfigOf(cmd)
			if err != nil {
				return err
			}
			return runServer(cmd.Context(), cfg, cmd.ErrOrStderr())
		},
	}
	cmd.Flags().String("listen", "", "address of pages and REST (MUSTER_LISTEN)")
	cmd.Flags().String("role", roleAll, "all, or relay: carry packets between hosts that cannot reach each other, and nothing else")
	cmd.AddCommand(migrateCommand(), checkCommand(), stripeSetupCommand(), adoptRestoreCommand(), adminCommand())
	return cmd
}

func serverConfigOf(cmd *cobra.Command) (serverConfig, error) {
	cfg, err := loadServerConfig(environOf(cmd))
	if err != nil {
		return cfg, err
	}
	if f := cmd.Flags().Lookup("listen"); f != nil && f.Value.String() != "" {
		cfg.Listen = f.Value.String()
	}
	return cfg, cfg.complete()
}

func runServer(ctx context.Context, cfg serverConfig, out io.Writer) error {
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	log := newLogger(out, cfg)
	a, err := startApp(ctx, cfg, log)
	if err != nil {
		return err
	}
	log.Info("serving", "version", version, "url", a.cfg.PublicURL, "hosts", a.cfg.AgentURL, "sandbox", cfg.sandbox())
	<-ctx.Done()
	stop() // a second signal ends at once
	log.Info("stopping", "limit", cfg.Drain)
	down, cancel := context.WithTimeout(context.Background(), cfg.Drain)
	defer cancel()
	return a.Close(down)
}

func newLogger(w io.Writer, cfg serverConfig) *slog.Logger {
	opts := &slog.HandlerOptions{Level: cfg.LogLevel}
	if cfg.LogFormat == "json" {
		return slog.New(slog.NewJSONHandler(w, opts))
	}
	return slog.New(slog.NewTextHandler(w, opts))
}

func migrateCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "migrate",
		Short: "Bring the database's schema to this version",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := loadServerConfig(environOf(cmd))
			if err != nil {
				return err
			}
			return db.Migrate(cmd.Context(), string(cfg.DatabaseURL))
		},
	}
}

// checkCommand proves that the books balance.
func checkCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "check",
		Short: "Check that the books balance",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := loadServerConfig(environOf(cmd))
			if err != nil {
				return err
			}
			d, err := db.Open(cmd.Context(), db.Config{URL: string(cfg.DatabaseURL), MaxConns: 2})
			if err != nil {
				return err
			}
			defer d.Close()
			t, err := ledger.Check(cmd.Context(), d)
			if err != nil {
				return err
			}
			for _, x := range t.Totals {
				fmt.Fprintf(cmd.OutOrStdout(), "%-20s %s %24s nano\n", x.Kind, x.Currency, x.Amount)
			}
			for _, p := range t.Problems {
				fmt.Fprintln(cmd.OutOrStdout(), "problem:", p)
			}
			if !t.Balanced() {
				return fmt.Errorf("the books do not balance")
			}
			return nil
		},
	}
}

// environOf is the environment as the command was given it.
func environOf(cmd *cobra.Command) map[string]string {
	m := map[string]string{}
	for _, kv := range environFrom(cmd.Context()) {
		k, v, _ := strings.Cut(kv, "=")
		m[k] = v
	}
	return m
}

func adminCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "admin EMAIL",
		Short: "Make a user a platform operator (--off: no longer)",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			cfg, err := loadServerConfig(environOf(cmd))
			if err != nil {
				return err
			}
			off, err := cmd.Flags().GetBool("off")
			if err != nil {
				return err
			}
			d, err := db.Open(cmd.Context(), db.Config{URL: string(cfg.DatabaseURL), MaxConns: 2})
			if err != nil {
				return err
			}
			defer d.Close()
			return account.New(d, account.Config{}).SetAdmin(cmd.Context(), args[0], !off)
		},
	}
	cmd.Flags().Bool("off", false, "take the right away")
	return cmd
}
