package cli

import (
	"os"

	"github.com/spf13/cobra"

	"github.com/musterhq/muster/agent/machine/gpucheck/cuda"
)

// gpucheckCommand is the program that proves that GPUs compute. The agent runs it in containers; people may run it on
// the host.
func gpucheckCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "gpucheck",
		Short: "Let every GPU store, copy and compute with CUDA, and print what was found as JSON",
		Long: `Let every GPU store, copy and compute with CUDA for a few seconds, and print what was found as JSON:
also how fast the GPUs of a model send to each other, all at the same time (ring_gbps).

The check uses the driver's libcuda.so.1; CUDA's toolkit is not needed. It runs in every rented node before its start is
billed, too. Options: --gpus UUID,… (exactly these must be there), --library PATH, --work DURATION,
--ring=false.`,
		DisableFlagParsing: true,
		Run: func(_ *cobra.Command, args []string) {
			os.Exit(cuda.Main(args, os.Stdout, os.Stderr))
		},
	}
}
