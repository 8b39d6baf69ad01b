package cli

import (
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"

	"github.com/musterhq/muster/internal/cli/base"
)

func manCommand() *cobra.Command {
	return &cobra.Command{
		Use: "man FOLDER", Short: "Write manual pages, one per command", Args: base.Exactly("FOLDER"),
		Long:    "Write manual pages, one per command, into a folder, which is created if it does not exist.",
		Example: "  muster man /usr/local/share/man/man1",
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := os.MkdirAll(args[0], 0o755); err != nil {
				return fmt.Errorf("create the folder: %w", err)
			}
			root := cmd.Root()
			root.DisableAutoGenTag = true // the same pages for the same version
			return doc.GenManTree(root, &doc.GenManHeader{
				Title: "MUSTER", Section: "1", Source: "muster " + root.Version, Manual: "Muster manual", Date: new(time.Time),
			}, args[0])
		},
	}
}
