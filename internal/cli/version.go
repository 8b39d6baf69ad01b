package cli

import (
	"runtime"

	"github.com/spf13/cobra"

	"github.com/musterhq/muster/internal/cli/base"
)

// programVersion is what this program is.
type programVersion struct {
	Version string `json:"version"`
	OS      string `json:"os"`
	Arch    string `json:"arch"`
	Go      string `json:"go"` // the version of Go that built it
}

func versionCommand() *cobra.Command {
	s := &base.Session{}
	cmd := &cobra.Command{
		Use: "version", Short: "Print the version of this program", Args: base.Exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			v := programVersion{cmd.Root().Version, runtime.GOOS, runtime.GOARCH, runtime.Version()}
			return s.Show(cmd, v, func(p *base.Printer) { p.Line("muster %s %s/%s %s", v.Version, v.OS, v.Arch, v.Go) })
		},
	}
	s.OutputFlag(cmd)
	return cmd
}
