// Command muster is the people's binary: the control plane, the command line for renters and operators, and the whole
// platform on one machine. One file per command; only this package reads flags and the environment, and wires things.
package main

import (
	"context"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/musterhq/muster/internal/fault"
)

// version is set by the linker: -X main.version=….
var version = "dev"

func main() {
	os.Exit(run(context.Background(), os.Args[1:], os.Environ(), os.Stdin, os.Stdout, os.Stderr))
}

// run executes one command line and returns the exit code (rest-api.md: 0 done, 1 failed, 2 usage, 3 not found,
// 4 no capacity, 5 no funds).
func run(ctx context.Context, args, environ []string, in io.Reader, out, errs io.Writer) int {
	root := newRoot()
	root.SetArgs(args)
	root.SetIn(in)
	root.SetOut(out)
	root.SetErr(errs)
	err := root.ExecuteContext(context.WithValue(ctx, environKey{}, environ))
	if err != nil {
		explain(errs, err)
	}
	return exitCode(err)
}

type environKey struct{}

// environFrom is the environment the command was started with, KEY=value.
func environFrom(ctx context.Context) []string {
	e, _ := ctx.Value(environKey{}).([]string)
	return e
}

func newRoot() *cobra.Command {
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
