package cli

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/musterhq/muster/internal/cli/base"
)

// daemon is the program that has the commands of package platform.
const daemon = "musterd"

// Handoff returns commands with the names of those of package platform. Each becomes musterd, in the same process, with
// the same arguments.
func Handoff() (out []*cobra.Command) {
	for _, c := range []struct{ name, short string }{
		{"server", "Run the control plane"},
		{"dev", "Run the whole platform on this machine"},
		{"demo", "Run the whole platform on this machine and play a renter's journey"},
	} {
		cmd := &cobra.Command{
			Use: c.name, Short: c.short,
			Long:               c.short + ".\n\nThe program musterd does this; `muster " + c.name + " --help` shows its help.",
			DisableFlagParsing: true, // the flags are musterd's
			RunE: func(cmd *cobra.Command, args []string) error {
				return become(cmd, append([]string{c.name}, args...)...)
			},
			ValidArgsFunction: func(cmd *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
				return completions(cmd, append([]string{cobra.ShellCompRequestCmd, c.name}, append(args, word)...)...)
			},
		}
		cmd.SetHelpFunc(func(cmd *cobra.Command, _ []string) {
			if err := become(cmd, c.name, "--help"); err != nil {
				cmd.PrintErrln("muster:", err)
			}
		})
		out = append(out, cmd)
	}
	return out
}

// become replaces this process with musterd. It returns only if that fails.
func become(cmd *cobra.Command, args ...string) error {
	environ := base.EnvironFrom(cmd.Context())
	path, err := findDaemon(environ)
	if err != nil {
		return err
	}
	return fmt.Errorf("start %s: %w", path, syscall.Exec(path, append([]string{path}, args...), environ))
}

// completions asks musterd for what may follow on its command line.
func completions(cmd *cobra.Command, args ...string) ([]string, cobra.ShellCompDirective) {
	path, err := findDaemon(base.EnvironFrom(cmd.Context()))
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	out, err := exec.CommandContext(cmd.Context(), path, args...).Output()
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	// The last line is the directive, as :NUMBER.
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	last := len(lines) - 1
	directive := cobra.ShellCompDirectiveDefault
	if _, err := fmt.Sscanf(lines[last], ":%d", &directive); err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	return lines[:last], directive
}

// findDaemon returns the path of musterd: in the folder of this program, or else in a folder of PATH.
func findDaemon(environ []string) (string, error) {
	var folders []string
	if self, err := os.Executable(); err == nil {
		folders = append(folders, filepath.Dir(self))
	}
	for _, kv := range environ {
		if path, ok := strings.CutPrefix(kv, "PATH="); ok {
			folders = append(folders, filepath.SplitList(path)...)
		}
	}
	for _, f := range folders {
		if !filepath.IsAbs(f) { // a program of the working folder is not taken for ours
			continue
		}
		path := filepath.Join(f, daemon)
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
			return path, nil
		}
	}
	return "", errors.New("cannot find " + daemon + ", which runs the control plane, in this program's folder or on " +
		"PATH: install it from the release's archive for servers (Linux), or build it with `make build`")
}
