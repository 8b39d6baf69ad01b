package cli

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/musterhq/muster/agent/gpu"
	"github.com/musterhq/muster/agent/gpu/probe"
)

// probeCommand is the command of the agent's child process that loads NVML. It is not for people.
func probeCommand() *cobra.Command {
	return &cobra.Command{
		Use:    "probe",
		Short:  "Read the GPUs for the agent, over stdin and stdout",
		Args:   cobra.NoArgs,
		Hidden: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			err := probe.Run(cmd.Context(), os.Stdin, os.Stdout, os.Getenv(gpu.LibraryEnv))
			if err != nil {
				fmt.Fprintln(os.Stderr, err)
				os.Exit(1)
			}
			os.Exit(0) // even if calls are still stuck in the driver
			return nil
		},
	}
}
