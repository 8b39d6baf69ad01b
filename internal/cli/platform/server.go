// Package platform holds the commands that run Muster itself: muster server, muster dev and muster demo. They are part
// of musterd, which muster starts for them.
package platform

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/musterhq/muster/internal/cli/base"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/server"
)

// Commands returns the commands of this package.
func Commands() []*cobra.Command {
	return []*cobra.Command{serverCommand(), devCommand(), demoCommand()}
}

// serverCommand is muster server.
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
			case role == server.RoleRelay:
				cfg, err := loadServerConfig(cmd)
				if err != nil {
					return err
				}
				return server.RunRelay(cmd.Context(), cfg, cmd.ErrOrStderr())
			case role != server.RoleAll:
				return fault.InvalidField("--role", "is all or relay")
			}
			cfg, err := serverConfigOf(cmd)
			if err != nil {
				return err
			}
			return server.Run(cmd.Context(), cfg, cmd.ErrOrStderr())
		},
	}
	cmd.Flags().String("listen", "", "address of pages and REST (MUSTER_LISTEN)")
	cmd.Flags().String("role", server.RoleAll, "all, or relay: carry packets between hosts that cannot reach each "+
		"other, and nothing else")
	cmd.AddCommand(migrateCommand(), checkCommand(), gpusCommand(), stripeSetupCommand(), adoptRestoreCommand(),
		natsConfigCommand(), adminCommand(), resetFactorCommand())
	return cmd
}

func serverConfigOf(cmd *cobra.Command) (server.Config, error) {
	cfg, err := loadServerConfig(cmd)
	if err != nil {
		return cfg, err
	}
	if f := cmd.Flags().Lookup("listen"); f != nil && f.Value.String() != "" {
		cfg.Listen = f.Value.String()
	}
	cfg.Commands = func() map[string]string { return base.Reference(cmd.Root()) }
	return cfg, cfg.Validate()
}

func migrateCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "migrate",
		Short: "Migrate the database's schema to this version",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := loadServerConfig(cmd)
			if err != nil {
				return err
			}
			return server.Migrate(cmd.Context(), cfg)
		},
	}
}

// checkCommand verifies that the ledger balances.
func checkCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "check",
		Short: "Check that the ledger balances",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := loadServerConfig(cmd)
			if err != nil {
				return err
			}
			t, err := server.CheckLedger(cmd.Context(), cfg)
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
				return fmt.Errorf("the ledger does not balance")
			}
			return nil
		},
	}
}

// loadServerConfig reads the server's settings from the environment that the command was started with.
func loadServerConfig(cmd *cobra.Command) (server.Config, error) {
	cfg, err := server.LoadConfig(environOf(cmd))
	cfg.Version = cmd.Root().Version
	return cfg, err
}

// environOf is the environment that the command was started with.
func environOf(cmd *cobra.Command) map[string]string {
	m := map[string]string{}
	for _, kv := range base.EnvironFrom(cmd.Context()) {
		k, v, _ := strings.Cut(kv, "=")
		m[k] = v
	}
	return m
}

func resetFactorCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "reset-second-factor EMAIL",
		Example: "  muster server reset-second-factor ada@example.com",
		Short:   "Remove a user's authenticator app, recovery codes and passkeys, for a user who has lost them all",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			cfg, err := loadServerConfig(cmd)
			if err != nil {
				return err
			}
			return server.ResetSecondFactor(cmd.Context(), cfg, args[0])
		},
	}
}

func adminCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "admin EMAIL",
		Example: "  muster server admin ada@example.com\n  muster server admin ada@example.com --off",
		Short:   "Make a user an admin; --off takes the right away",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			cfg, err := loadServerConfig(cmd)
			if err != nil {
				return err
			}
			off, err := cmd.Flags().GetBool("off")
			if err != nil {
				return err
			}
			return server.SetAdmin(cmd.Context(), cfg, args[0], !off)
		},
	}
	cmd.Flags().Bool("off", false, "take the right away")
	return cmd
}
