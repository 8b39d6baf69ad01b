// Package cli is the muster-agent command, which runs on every host. There is one file per command; only this package
// reads flags and the environment.
package cli

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
)

// Build holds the values that the linker sets in this program.
type Build struct {
	Version string
	// ReleaseKeys are the raw Ed25519 public keys that sign releases, in base64, separated by commas. Without keys, the
	// agent never replaces itself.
	ReleaseKeys string
}

// build is set once, by Main.
var build = Build{Version: "dev"}

// Main runs the command line of the process and returns its exit code: 0 success, 1 failure.
func Main(b Build) int {
	build = b
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := root().ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "muster-agent:", err)
		return 1
	}
	return 0
}

func root() *cobra.Command {
	cmd := &cobra.Command{
		Use:           "muster-agent",
		Short:         "Rent out this machine's GPUs",
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	cmd.AddCommand(enrollCommand(), inventoryCommand(), doctorCommand(), runCommand(), launchCommand(), overlayCommand(),
		probeCommand(), snapdCommand(), purgeCommand(), gpuCommand(), gpucheckCommand(), versionCommand())
	return cmd
}
