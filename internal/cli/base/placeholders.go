package base

import (
	"context"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/fleet/market/query"
)

// Completion adds completion to a command and to those below it, wherever they have none of their own. A placeholder
// of the usage line, such as CLUSTER, decides what an argument can be, and a flag's name what its value can be.
// Elsewhere nothing is suggested, not even files.
func (s *Session) Completion(cmd *cobra.Command) {
	for _, sub := range cmd.Commands() {
		s.Completion(sub)
	}
	if cmd.ValidArgsFunction == nil && cmd.Runnable() && (!cmd.HasSubCommands() || cmd.Name() == "quote") {
		cmd.ValidArgsFunction = s.complete(cmd)
	}
	cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
		if _, has := cmd.GetFlagCompletionFunc(f.Name); !has && f.Value.Type() != "bool" {
			_ = cmd.RegisterFlagCompletionFunc(f.Name, s.value(f.Name))
		}
	})
}

// nothing suggests nothing.
func nothing(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	return nil, cobra.ShellCompDirectiveNoFileComp
}

// files suggests files.
func files(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	return nil, cobra.ShellCompDirectiveDefault
}

// words suggests fixed words.
func words(all ...string) Completer {
	return cobra.FixedCompletions(all, cobra.ShellCompDirectiveNoFileComp)
}

// complete completes the arguments of a command by the placeholders of its usage line.
func (s *Session) complete(cmd *cobra.Command) Completer {
	holders, command := placeholders(cmd.Use)
	completers := make([]Completer, len(holders))
	for i, h := range holders {
		completers[i] = s.placeholder(strings.TrimSuffix(h, "…"), cmd.Name())
	}
	return func(cmd *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
		switch n := len(args); {
		case n < len(holders):
			return completers[n](cmd, args, word)
		case command:
			return files(cmd, args, word)
		case len(holders) > 0 && slices.ContainsFunc(holders, func(h string) bool { return strings.HasSuffix(h, "…") }):
			return completers[len(completers)-1](cmd, args, word)
		}
		return nothing(cmd, args, word)
	}
}

// placeholders returns the arguments that a usage line names, and whether a command of the user's may follow --.
func placeholders(use string) (names []string, command bool) {
	fields := strings.Fields(use)[1:]
	for i := 0; i < len(fields); i++ {
		switch word := strings.Trim(fields[i], "[]"); {
		case word == "--":
			return names, true
		case strings.HasPrefix(word, "-"):
			if !strings.HasSuffix(fields[i], "]") { // its value follows
				i++
			}
		case word == strings.ToUpper(word):
			names = append(names, word)
		}
	}
	return names, false
}

// Argument sets what completes the arguments that usage lines call name, such as BUCKET.
func (s *Session) Argument(name string, c Completer) {
	if s.arguments == nil {
		s.arguments = map[string]Completer{}
	}
	s.arguments[name] = c
}

// placeholder returns what an argument with a name can be, for a command with the given name.
func (s *Session) placeholder(name, command string) Completer {
	if c := s.arguments[name]; c != nil {
		return c
	}
	switch name {
	case "CLUSTER", "CLUSTER|LEASE":
		if slices.Contains([]string{"show", "logs", "events", "usage", "verify", "suspensions"}, command) {
			return s.AllClusters()
		}
		return s.Clusters()
	case "HOST":
		return s.Hosts()
	case "TOKEN":
		return s.Tokens()
	case "KEY":
		return s.SSHKeys()
	case "TEMPLATE":
		return Names(s, func(c *client.Client) Lister[client.Template] { return Unpaged(c.Templates.List) },
			func(t client.Template) []string {
				return []string{Described(t.Name, t.Title)}
			})
	case "ROLE":
		return words("owner", "admin", "member", "operator", "billing", "viewer")
	case "FILE", "FOLDER", "SOURCE", "TARGET":
		return files
	}
	return nothing
}

// value returns what the value of a flag can be.
func (s *Session) value(flag string) Completer {
	switch flag {
	case "file", "env-file", "identity", "save", "bin":
		return files
	case "ssh-key":
		return s.SSHKeys()
	case "project":
		return s.Projects
	case "region":
		return s.regions()
	case "template":
		return s.placeholder("TEMPLATE", "")
	case "from-cluster":
		return s.AllClusters()
	case "role":
		return s.placeholder("ROLE", "")
	case "card":
		return s.placeholder("CARD", "")
	case "state":
		return words(string(client.Provisioning), string(client.Running), string(client.Degraded),
			string(client.Releasing), string(client.Released), string(client.Failed))
	case "for":
		return words(string(client.Running), string(client.Released), string(client.Failed), "ended")
	case "sort":
		var all []string
		for _, f := range query.Fields {
			all = append(all, f.Name, "-"+f.Name)
		}
		return words(all...)
	case "series":
		return words("receipt", "credit_note", "self_billing")
	}
	return nothing
}

// Unpaged adapts a list that comes in one page.
func Unpaged[T any](list func(context.Context) (client.Page[T], error)) Lister[T] {
	return func(ctx context.Context, _ client.PageOf) (client.Page[T], error) { return list(ctx) }
}

// Projects completes the projects of clusters and of budgets.
func (s *Session) Projects(cmd *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
	used, directive := Names(s, clusters, func(c client.Cluster) []string {
		if c.Spec.Project == "" {
			return nil
		}
		return []string{c.Spec.Project}
	})(cmd, args, word)
	if directive == cobra.ShellCompDirectiveError {
		return nil, directive
	}
	planned, directive := Names(s, func(c *client.Client) Lister[client.Budget] { return Unpaged(c.Budgets.List) },
		func(b client.Budget) []string {
			if b.Project == "" {
				return nil
			}
			return []string{b.Project}
		})(cmd, args, word)
	all := append(used, planned...)
	slices.Sort(all)
	return slices.Compact(all), directive
}

// regions completes the regions in which GPUs are offered.
func (s *Session) regions() Completer {
	return Names(s, func(c *client.Client) Lister[client.Offer] {
		return func(ctx context.Context, p client.PageOf) (client.Page[client.Offer], error) {
			page, err := c.Offers.Search(ctx, client.OffersQuery{PageOf: p})
			return client.Page[client.Offer]{Items: page.Items}, err
		}
	}, func(o client.Offer) []string { return []string{o.Region} })
}
