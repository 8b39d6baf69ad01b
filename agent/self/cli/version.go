package cli

import (
	"github.com/spf13/cobra"

	"github.com/musterhq/muster/internal/agentapi"
)

func versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the agent's version",
		Args:  cobra.NoArgs,
		Run: func(cmd *cobra.Command, _ []string) {
			cmd.Printf("muster-agent %s (protocol %d)\n", build.Version, agentapi.Protocol)
		},
	}
}
