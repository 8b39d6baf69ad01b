package base

import (
	"fmt"
	"os/exec"
	"runtime"

	"github.com/spf13/cobra"

	"github.com/musterhq/muster/internal/fault"
)

// OpenBrowser opens a link with the desktop's own program.
func OpenBrowser(cmd *cobra.Command, link string) error {
	name := "xdg-open"
	if runtime.GOOS == "darwin" {
		name = "open"
	}
	program, err := exec.LookPath(name)
	if err != nil {
		return fault.New(fault.NotFound, "%s is not installed here: open this link yourself: %s", name, link)
	}
	opener := exec.CommandContext(cmd.Context(), program, link)
	opener.Env = EnvironFrom(cmd.Context())
	if err := opener.Run(); err != nil {
		return fmt.Errorf("open a browser: %w", err)
	}
	return nil
}
