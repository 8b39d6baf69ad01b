package cli

import (
	"os"

	"github.com/spf13/cobra"

	"github.com/musterhq/muster/agent/storage/snapd"
)

// snapdCommand is the command with which the agent starts the process for volumes: this executable again. It is not for
// people.
func snapdCommand() *cobra.Command {
	return &cobra.Command{
		Use:                "snapd FOLDER",
		Hidden:             true,
		DisableFlagParsing: true,
		Run:                func(_ *cobra.Command, args []string) { os.Exit(snapd.Main(args)) },
	}
}
