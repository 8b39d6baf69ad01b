package cli

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/musterhq/muster/agent/machine/gpu"
	"github.com/musterhq/muster/agent/machine/gpu/amd"
	"github.com/musterhq/muster/agent/machine/gpu/device"
	"github.com/musterhq/muster/agent/machine/gpu/probe"
	"github.com/musterhq/muster/internal/agentapi"
)

// probeCommand is the command of the agent's child process that asks the GPUs of a vendor. It is not for people.
func probeCommand() *cobra.Command {
	return &cobra.Command{
		Use:    "probe VENDOR",
		Short:  "Read the GPUs for the agent, over stdin and stdout",
		Args:   cobra.ExactArgs(1),
		Hidden: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			var err error
			switch args[0] {
			case agentapi.NVIDIA:
				err = probe.Run(cmd.Context(), os.Stdin, os.Stdout, os.Getenv(gpu.LibraryEnv))
			case agentapi.AMD:
				err = device.Serve(cmd.Context(), os.Stdin, os.Stdout, amd.New(os.Getenv(amd.TreeEnv)))
			default:
				err = fmt.Errorf("%q: want %s or %s", args[0], agentapi.NVIDIA, agentapi.AMD)
			}
			if err != nil {
				fmt.Fprintln(os.Stderr, err)
				os.Exit(1)
			}
			os.Exit(0) // even if calls are still stuck in the driver
			return nil
		},
	}
}
