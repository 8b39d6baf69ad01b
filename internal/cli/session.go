package cli

import (
	"context"
	"strings"

	"github.com/spf13/cobra"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/fault"
)

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

// variable is one variable of the environment the command was started with, or "".
func variable(ctx context.Context, name string) string {
	for _, kv := range environFrom(ctx) {
		if v, ok := strings.CutPrefix(kv, name+"="); ok {
			return v
		}
	}
	return ""
}
