// Package base is what every command is made of: the connection to the platform, arguments, prompts, and output as
// tables or JSON.
package base

import (
	"context"
	"strings"

	"github.com/spf13/cobra"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/fault"
)

// Session is how the commands of one noun reach the platform and print what they get.
type Session struct {
	Output string
	Server string
}

// Flags adds the flags that every command of the platform has: --output and --server.
func (s *Session) Flags(cmd *cobra.Command) {
	f := cmd.PersistentFlags()
	f.StringVarP(&s.Output, "output", "o", "table", "table or json")
	f.StringVar(&s.Server, "server", "", "address of the platform (default: MUSTER_SERVER, else the one you logged in to)")
	cmd.PersistentPreRunE = func(*cobra.Command, []string) error {
		if s.Output != "table" && s.Output != "json" {
			return fault.New(fault.Invalid, "--output is table or json")
		}
		return nil
	}
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions([]string{"table", "json"},
		cobra.ShellCompDirectiveNoFileComp))
}

// Client is the platform's client with the token that goes with it: a stored token is sent only to the platform it was
// stored for. Without a platform or a token every call of it fails and says what to do.
func (s *Session) Client(cmd *cobra.Command) *client.Client {
	server, token, err := s.Login(cmd.Context())
	if err != nil {
		return client.Failing(err)
	}
	c, err := client.New(server, token, client.WithUserAgent("muster-cli/"+cmd.Root().Version))
	if err != nil {
		return client.Failing(err)
	}
	return c
}

// Login returns the platform's address and the token for it: from flags, else the environment, else the stored login.
func (s *Session) Login(ctx context.Context) (server, token string, err error) {
	stored, err := ReadLogin(ctx)
	if err != nil {
		return "", "", err
	}
	server, token = FirstOf(s.Server, Variable(ctx, "MUSTER_SERVER"), stored.Server), Variable(ctx, "MUSTER_TOKEN")
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

// Variable returns one variable of the environment that the command was started with, or "".
func Variable(ctx context.Context, name string) string {
	for _, kv := range EnvironFrom(ctx) {
		if v, ok := strings.CutPrefix(kv, name+"="); ok {
			return v
		}
	}
	return ""
}
