// Package base is what every command is made of: the connection to the platform, arguments, prompts, and output as
// tables, JSON or YAML.
package base

import (
	"context"
	"net/http"
	"strings"

	"github.com/spf13/cobra"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/fault"
)

// Session is how the commands of one noun reach the platform and print what they get.
type Session struct {
	Output  string
	Server  string
	Profile string
	curl    bool

	arguments map[string]Completer // by placeholder
}

// Flags adds the flags that every command of the platform has.
func (s *Session) Flags(cmd *cobra.Command) {
	s.OutputFlag(cmd)
	f := cmd.PersistentFlags()
	f.StringVar(&s.Server, "server", "", "address of the platform (default: MUSTER_SERVER, or that of the profile)")
	f.StringVar(&s.Profile, "profile", "", "stored login to use (default: MUSTER_PROFILE, or see muster profile list)")
	f.BoolVar(&s.curl, "curl", false, "print requests as curl commands on standard error; send only those that read")
	_ = cmd.RegisterFlagCompletionFunc("profile", s.Profiles)
}

// OutputFlag adds --output alone, for a command that needs no platform.
func (s *Session) OutputFlag(cmd *cobra.Command) {
	cmd.PersistentFlags().StringVarP(&s.Output, "output", "o", outputTable, strings.Join(outputs, ", "))
	cmd.PersistentPreRunE = func(cmd *cobra.Command, _ []string) error {
		if err := checkOutput(s.Output); err != nil {
			return err
		}
		return checkFlags(cmd)
	}
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(outputs, cobra.ShellCompDirectiveNoFileComp))
}

// Profiles completes names of stored logins.
func (s *Session) Profiles(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
	stored, err := ReadLogins(cmd.Context())
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	return stored.Names(), cobra.ShellCompDirectiveNoFileComp
}

// Client returns a client of the platform with the token that belongs to it: a stored token is sent only to the
// platform it was stored for. Without a platform or a token, every call of the client fails and says what to do.
func (s *Session) Client(cmd *cobra.Command) *client.Client {
	l, err := s.Login(cmd.Context())
	if err != nil {
		return client.Failing(err)
	}
	c, err := s.Connect(cmd, l)
	if err != nil {
		return client.Failing(err)
	}
	return c
}

// Connect returns a client of one platform with one token, or none.
func (s *Session) Connect(cmd *cobra.Command, l Login) (*client.Client, error) {
	o := []client.Option{client.WithUserAgent("muster-cli/" + cmd.Root().Version)}
	if s.curl {
		o = append(o, client.WithHTTP(&http.Client{Transport: curl{cmd.ErrOrStderr(), http.DefaultTransport}}))
	}
	return client.New(l.Server, l.Token, o...)
}

// ProfileOf returns the name of the profile that a command uses.
func (s *Session) ProfileOf(ctx context.Context, stored Logins) string {
	return FirstOf(s.Profile, Variable(ctx, "MUSTER_PROFILE"), stored.Current, DefaultProfile)
}

// Login returns the platform and the token for it: from flags, the environment, or the stored profile, in this order.
func (s *Session) Login(ctx context.Context) (Login, error) {
	l, err := s.platform(ctx)
	if err == nil && l.Token == "" {
		err = fault.New(fault.Unauthorized, "there is no token for %s: run muster login %s, or set MUSTER_TOKEN", l.Server,
			l.Server)
	}
	if err != nil {
		return Login{}, err
	}
	return l, nil
}

// Visitor returns a client of the platform for calls that need no token. It has the token that Client would have, if
// there is one.
func (s *Session) Visitor(cmd *cobra.Command) (*client.Client, error) {
	l, err := s.platform(cmd.Context())
	if err != nil {
		return nil, err
	}
	return s.Connect(cmd, l)
}

// platform returns the platform, and the token for it if there is one.
func (s *Session) platform(ctx context.Context) (Login, error) {
	stored, err := ReadLogins(ctx)
	if err != nil {
		return Login{}, err
	}
	name := s.ProfileOf(ctx, stored)
	profile, known := stored.Profiles[name]
	if asked := FirstOf(s.Profile, Variable(ctx, "MUSTER_PROFILE")); asked != "" && !known {
		return Login{}, fault.New(fault.Unauthorized, "there is no profile %q: run muster login --profile %s "+
			"https://your.platform", asked, asked)
	}
	l := Login{Server: strings.TrimSpace(FirstOf(s.Server, Variable(ctx, "MUSTER_SERVER"), profile.Server)),
		Token: TokenVariable(ctx)}
	if l.Server == "" {
		return Login{}, fault.New(fault.Unauthorized, "you are not logged in: run muster login https://your.platform, or "+
			"set MUSTER_SERVER and MUSTER_TOKEN")
	}
	if l.Token == "" && sameServer(l.Server, profile.Server) {
		l.Token = profile.Token
	}
	return l, nil
}

func sameServer(a, b string) bool { return strings.TrimRight(a, "/") == strings.TrimRight(b, "/") }

// Variable returns one variable of the environment that the command was started with, or "".
func Variable(ctx context.Context, name string) string {
	v, _ := LookupVariable(ctx, name)
	return v
}

// TokenVariable returns MUSTER_TOKEN without the line breaks and spaces that files of secrets end with.
func TokenVariable(ctx context.Context) string {
	return strings.TrimSpace(Variable(ctx, "MUSTER_TOKEN"))
}

// LookupVariable returns one variable of the environment that the command was started with, and whether it is set.
func LookupVariable(ctx context.Context, name string) (string, bool) {
	for _, kv := range EnvironFrom(ctx) {
		if v, ok := strings.CutPrefix(kv, name+"="); ok {
			return v, true
		}
	}
	return "", false
}
