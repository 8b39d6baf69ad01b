package cli

import (
	"fmt"
	"runtime"

	"github.com/spf13/cobra"

	"github.com/musterhq/muster/internal/cli/base"
)

func versionCommand() *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "Print the version of this program", Args: base.Exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprintf(cmd.OutOrStdout(), "muster %s %s/%s %s\n", cmd.Root().Version, runtime.GOOS, runtime.GOARCH,
				runtime.Version())
			return err
		},
	}
}
