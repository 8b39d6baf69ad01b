package cli

import (
	"os"

	"github.com/spf13/cobra"

	"github.com/musterhq/muster/agent/net/overlay"
)

// overlayCommand is the command with which the agent starts a lease's overlay process: this executable again. It is not
// for people.
func overlayCommand() *cobra.Command {
	return &cobra.Command{
		Use:                "overlay LEASE_FOLDER",
		Hidden:             true,
		DisableFlagParsing: true,
		Run:                func(_ *cobra.Command, args []string) { os.Exit(overlay.Main(args)) },
	}
}
