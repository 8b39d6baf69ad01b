// Package cli is the muster command: the command line of renters, host operators and admins, and the commands that run
// the control plane or the whole platform on one machine. There is a file per command; its name follows the command
// tree.
//
// Only this package and package server read flags and the environment.
package cli

import (
	"context"
	"io"

	"github.com/spf13/cobra"

	"github.com/musterhq/muster/internal/fault"
)

// Run executes one command line of the program's given version and returns the exit code: 0 done, 1 failed, 2 usage,
// 3 not found, 4 no capacity, 5 no funds. environ is the environment as KEY=value.
func Run(ctx context.Context, version string, args, environ []string, in io.Reader, out, errs io.Writer) int {
	root := newRoot(version)
	root.SetArgs(args)
	root.SetIn(in)
	root.SetOut(out)
	root.SetErr(errs)
	err := root.ExecuteContext(withEnviron(ctx, environ))
	if err != nil {
		explain(errs, err)
	}
	return exitCode(err)
}

func newRoot(version string) *cobra.Command {
	root := &cobra.Command{
		Use:           "muster",
		Short:         "GPU clusters, by the second",
		Version:       version,
		SilenceUsage:  true,
		SilenceErrors: true,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return fault.New(fault.Invalid, "there is no command %q; see muster help", args[0])
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return fault.New(fault.Invalid, "%s; see %s --help", err, cmd.CommandPath())
	})
	root.AddCommand(serverCommand(), devCommand(), demoCommand())
	addPeople(root)
	return root
}
