// Command muster-agent runs on every host. One file per command; only this package reads flags and the environment.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
)

// version is set by the linker: -X main.version=….
var version = "dev"

// releaseKeys are set by the linker, too: base64 of the raw Ed25519 public keys that sign releases, separated by commas.
// Without any the agent never replaces itself.
var releaseKeys string

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := root().ExecuteContext(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "muster-agent:", err)
		os.Exit(1)
	}
}

func root() *cobra.Command {
	cmd := &cobra.Command{
		Use:           "muster-agent",
		Short:         "The agent that rents out this machine's GPUs",
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	cmd.AddCommand(enrollCommand(), inventoryCommand(), doctorCommand(), runCommand(), launchCommand(), overlayCommand(), probeCommand(), purgeCommand(), versionCommand())
	return cmd
}
