// Package cli is the command line of renters, host operators and admins. A package below it holds the commands of one
// noun, a file for each; package base holds what they share. Package platform, with the commands that run the control
// plane or the whole platform on one machine, is part of musterd only: muster starts musterd for them.
//
// Only these packages and package server read flags and the environment.
package cli

import (
	"context"
	"errors"
	"io"

	"github.com/spf13/cobra"

	"github.com/musterhq/muster/internal/cli/account"
	"github.com/musterhq/muster/internal/cli/admin"
	"github.com/musterhq/muster/internal/cli/base"
	"github.com/musterhq/muster/internal/cli/billing"
	"github.com/musterhq/muster/internal/cli/bucket"
	"github.com/musterhq/muster/internal/cli/cluster"
	"github.com/musterhq/muster/internal/cli/host"
	"github.com/musterhq/muster/internal/cli/shared"
	"github.com/musterhq/muster/internal/cli/volume"
)

// Program is a program with the command line: muster or musterd.
type Program struct {
	Version string
	// Platform returns the commands that run Muster itself: platform.Commands, or Handoff.
	Platform func() []*cobra.Command
}

// Run executes one command line and returns the exit code: 0 done, 1 failed, 2 usage, 3 not found, 4 no capacity, 5 no
// funds. environ is the environment as KEY=value.
func (p Program) Run(ctx context.Context, args, environ []string, in io.Reader, out, errs io.Writer) int {
	root := p.root()
	root.SetArgs(args)
	root.SetIn(in)
	root.SetOut(out)
	root.SetErr(errs)
	cmd, err := root.ExecuteContextC(base.WithEnviron(ctx, environ))
	if errors.Is(err, base.ErrNotSent) {
		return 0
	}
	if err != nil && !base.PrintFailure(errs, outputOf(cmd, args), problemOf(err)) {
		explain(errs, err)
	}
	return exitCode(err)
}

const helpByExample = `Muster rents GPU clusters by the second.

A first run, from nothing to a result:

  muster login https://muster.example         # your browser asks you to confirm
  muster billing topup 25                     # adds credit
  muster offers 'gpu_model=H100 vram_gb>=80'  # cheapest first
  muster quote --nodes 2 --gpus 4 --gpu gpu_model=H100
  muster cluster create --name train --nodes 2 --gpus 4 --gpu gpu_model=H100 \
      --image pytorch/pytorch:2.4.0 --budget 20 --wait -- python train.py
  muster cluster logs train --follow
  muster cluster usage train                  # what it cost, segment by segment
  muster cluster release train

Selling instead: muster host enroll --region eu-west, then muster host set HOST --price 2.40.

Every command takes -o json, yaml, name or wide, and --curl, which prints the requests instead. With json and yaml an
error is a document on standard error, too, with the API's code.
Exit codes: 0 done, 1 failed, 2 usage, 3 not found, 4 no capacity, 5 no funds.
MUSTER_SERVER and MUSTER_TOKEN take the place of a login.`

func (p Program) root() *cobra.Command {
	root := &cobra.Command{
		Use:           "muster",
		Short:         "GPU clusters, by the second",
		Version:       p.Version,
		SilenceUsage:  true,
		SilenceErrors: true,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return base.NoCommand(cmd, args[0])
			}
			return nil
		},
		SuggestionsMinimumDistance: 2,
		RunE:                       func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetFlagErrorFunc(base.FlagError)
	root.Long = helpByExample
	root.AddCommand(p.Platform()...)
	root.AddCommand(versionCommand(), manCommand())
	for _, command := range []func(*base.Session) *cobra.Command{
		account.LoginCommand, cluster.OffersCommand, cluster.EstimateCommand, cluster.QuoteCommand, cluster.Command,
		cluster.TemplateCommand, volume.Command, bucket.Command, shared.Command,
		host.Command, billing.Command,
		billing.StatementCommand, billing.BudgetCommand, account.TokenCommand, account.SSHKeyCommand, account.NoticeCommand,
		account.WebhookCommand, admin.Command,
		billing.PayoutCommand, billing.DocumentCommand, account.OrgCommand, account.Command, account.ProfileCommand,
		account.LogoutCommand, account.WhoamiCommand,
	} {
		s := &base.Session{}
		cmd := command(s)
		s.Flags(cmd)
		s.Completion(cmd)
		root.AddCommand(cmd)
	}
	base.AddAliases(root)
	base.AddExamples(root)
	return root
}
