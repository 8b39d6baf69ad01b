package cli

import (
	"context"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/fault"
)

const helpByExample = `Muster rents GPU clusters by the second.

A first run, from nothing to a result:

  muster login https://muster.example        the token is asked for, never an argument
  muster billing topup 25                    add credit
  muster offers 'gpu_model=H100 vram_gb>=80' what can be rented, cheapest first
  muster quote --nodes 2 --gpus 4 --gpu gpu_model=H100
  muster cluster create --name train --nodes 2 --gpus 4 --gpu gpu_model=H100 \
      --image pytorch/pytorch:2.4.0 --budget 20 --wait -- python train.py
  muster cluster logs train --follow
  muster cluster usage train                 what it cost, segment by segment
  muster cluster release train

Selling instead: muster host enroll --region eu-west, then muster host set HOST --price 2.40.

Every command takes -o json. Exit codes: 0 done, 1 failed, 2 usage, 3 not found, 4 no capacity, 5 no funds.
MUSTER_SERVER and MUSTER_TOKEN take the place of a login.`

// addPeople adds the commands for renters and host operators.
func addPeople(root *cobra.Command) {
	root.Long = helpByExample
	for _, make := range []func(*shell) *cobra.Command{
		loginCommand, offersCommand, quoteCommand, clusterCommand, hostCommand, billingCommand, statementCommand,
		budgetCommand, tokenCommand, sshKeyCommand, platformCommand,
		payoutCommand, documentCommand, orgCommand, accountCommand,
	} {
		s := &shell{}
		cmd := make(s)
		s.flags(cmd)
		root.AddCommand(cmd)
	}
}

// shell is what the commands of one noun share: where to call, and how to speak to whoever typed.
type shell struct {
	output string
	server string
}

func (s *shell) flags(cmd *cobra.Command) {
	f := cmd.PersistentFlags()
	f.StringVarP(&s.output, "output", "o", "table", "table or json")
	f.StringVar(&s.server, "server", "", "address of the platform (default: MUSTER_SERVER, else the one you logged in to)")
	cmd.PersistentPreRunE = func(*cobra.Command, []string) error {
		if s.output != "table" && s.output != "json" {
			return fault.New(fault.Invalid, "--output is table or json")
		}
		return nil
	}
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions([]string{"table", "json"},
		cobra.ShellCompDirectiveNoFileComp))
}

// variable is one variable of the environment the command was started with, or "".
func variable(ctx context.Context, name string) string {
	for _, kv := range environFrom(ctx) {
		if v, ok := strings.CutPrefix(kv, name+"="); ok {
			return v
		}
	}
	return ""
}

// client is the platform's client with the token that goes with it: a stored token is sent only to the platform it was
// stored for. Without a platform or a token every call of it fails and says what to do.
func (s *shell) client(cmd *cobra.Command) *client.Client {
	server, token, err := s.login(cmd.Context())
	if err != nil {
		return client.Failing(err)
	}
	c, err := client.New(server, token, client.WithUserAgent("muster-cli/"+cmd.Root().Version))
	if err != nil {
		return client.Failing(err)
	}
	return c
}

// login is the platform's address and the token for it: flags, then the environment, then what muster login stored.
func (s *shell) login(ctx context.Context) (server, token string, err error) {
	stored, err := readLogin(ctx)
	if err != nil {
		return "", "", err
	}
	server, token = firstOf(s.server, variable(ctx, "MUSTER_SERVER"), stored.Server), variable(ctx, "MUSTER_TOKEN")
	if server == "" {
		return "", "", fault.New(fault.Unauthorized, "you are not logged in: run muster login https://your.platform, or "+
			"set MUSTER_SERVER and MUSTER_TOKEN")
	}
	if token == "" && sameServer(server, stored.Server) {
		token = stored.Token
	}
	if token == "" {
		return "", "", fault.New(fault.Unauthorized, "there is no token for %s: run muster login %s, or set MUSTER_TOKEN",
			server, server)
	}
	return server, token, nil
}

func sameServer(a, b string) bool { return strings.TrimRight(a, "/") == strings.TrimRight(b, "/") }

func firstOf(s ...string) string {
	for _, v := range s {
		if v != "" {
			return v
		}
	}
	return ""
}

// terminal is the file descriptor behind a stream that is a terminal.
func terminal(stream any) (fd int, ok bool) {
	f, ok := stream.(*os.File)
	if !ok {
		return 0, false
	}
	fd = int(f.Fd())
	return fd, term.IsTerminal(fd)
}

// secret asks for something that must not be seen: without echo on a terminal, else the first line of standard input.
func secret(cmd *cobra.Command, prompt string) (string, error) {
	s, err := hiddenLine(cmd, prompt)
	return strings.TrimSpace(s), err
}

// hiddenLine is secret with its spaces: a password may begin or end with some.
func hiddenLine(cmd *cobra.Command, prompt string) (string, error) {
	if fd, ok := terminal(cmd.InOrStdin()); ok {
		if _, err := io.WriteString(cmd.ErrOrStderr(), prompt+": "); err != nil {
			return "", err
		}
		b, err := term.ReadPassword(fd)
		_, _ = io.WriteString(cmd.ErrOrStderr(), "\n")
		return string(b), err
	}
	s, err := readLine(cmd.InOrStdin())
	return strings.TrimSuffix(s, "\r"), err
}

// readLine reads up to the newline and no further: what follows belongs to whoever reads next.
func readLine(r io.Reader) (string, error) {
	var line []byte
	for b := make([]byte, 1); len(line) < 64<<10; {
		n, err := r.Read(b)
		if n == 1 && b[0] == '\n' {
			break
		}
		line = append(line, b[:n]...)
		if err == io.EOF {
			break
		}
		if err != nil {
			return "", err
		}
	}
	return string(line), nil
}

// exactly is cobra.ExactArgs with words that say what is missing.
func exactly(names ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) == len(names) {
			return nil
		}
		want := strings.Join(names, " ")
		if want == "" {
			want = "no arguments"
		}
		return fault.New(fault.Invalid, "%s takes %s; see %s --help", cmd.CommandPath(), want, cmd.CommandPath())
	}
}

// atMost is cobra.MaximumNArgs(1) as a usage fault.
func atMost(name string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) <= 1 {
			return nil
		}
		return fault.New(fault.Invalid, "%s takes one %s at most: put it in quotes; see %s --help", cmd.CommandPath(), name,
			cmd.CommandPath())
	}
}

// noun is a command that only holds others.
func noun(use, short string, subs ...*cobra.Command) *cobra.Command {
	cmd := &cobra.Command{
		Use: use, Short: short,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return fault.New(fault.Invalid, "there is no command %q %q; see %s --help", cmd.CommandPath(), args[0],
					cmd.CommandPath())
			}
			return cmd.Help()
		},
	}
	cmd.AddCommand(subs...)
	return cmd
}
