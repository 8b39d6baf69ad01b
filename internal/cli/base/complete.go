package base

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/fleet/market/query"
)

// completionTime is how long a shell waits for names from the platform when the user presses Tab.
const completionTime = time.Second

// completionItems is how many items a completion looks at, newest first.
const completionItems = 100

// Completer returns what a word of a command line can be.
type Completer = func(cmd *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective)

// First completes the first argument only.
func First(f Completer) Completer {
	return func(cmd *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return f(cmd, args, word)
	}
}

// Lister reads a page of a list.
type Lister[T any] = func(context.Context, client.PageOf) (client.Page[T], error)

// Names completes from a list that the platform returns.
func Names[T any](s *Session, list func(*client.Client) Lister[T], words func(T) []string) Completer {
	return func(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
		ctx, cancel := context.WithTimeout(cmd.Context(), completionTime)
		defer cancel()
		page, err := list(s.Client(cmd))(ctx, client.PageOf{Limit: completionItems})
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		var out []string
		for _, v := range page.Items {
			out = append(out, words(v)...)
		}
		slices.Sort(out)
		return slices.Compact(out), cobra.ShellCompDirectiveNoFileComp
	}
}

// Described is a word with a description, as cobra wants them.
func Described(word string, about ...string) string { return word + "\t" + strings.Join(about, " ") }

// Clusters completes names and ids of the clusters that have not ended.
func (s *Session) Clusters() Completer {
	return Names(s, clusters, func(c client.Cluster) []string {
		if c.State.Ended() {
			return nil
		}
		return clusterWords(c)
	})
}

// AllClusters completes names and ids of clusters, of ended ones too.
func (s *Session) AllClusters() Completer { return Names(s, clusters, clusterWords) }

func clusters(c *client.Client) Lister[client.Cluster] {
	return func(ctx context.Context, p client.PageOf) (client.Page[client.Cluster], error) {
		return c.Clusters.List(ctx, client.ClustersQuery{PageOf: p})
	}
}

func clusterWords(c client.Cluster) []string {
	return []string{Described(c.Name, string(c.State)), Described(c.ID.String(), c.Name, string(c.State))}
}

// Hosts completes names and ids of hosts.
func (s *Session) Hosts() Completer {
	return Names(s, func(c *client.Client) Lister[client.Host] {
		return func(ctx context.Context, p client.PageOf) (client.Page[client.Host], error) {
			return c.Hosts.List(ctx, client.HostsQuery{PageOf: p})
		}
	}, func(h client.Host) []string {
		return []string{Described(h.Name, h.Region, h.State), Described(h.ID.String(), h.Name)}
	})
}

// Tokens completes ids of API tokens.
func (s *Session) Tokens() Completer {
	return Names(s, func(c *client.Client) Lister[client.Token] { return c.Tokens.List }, func(t client.Token) []string {
		return []string{Described(t.ID.String(), t.Name)}
	})
}

// SSHKeys completes ids of SSH keys.
func (s *Session) SSHKeys() Completer {
	return Names(s, func(c *client.Client) Lister[client.SSHKey] { return c.SSHKeys.List },
		func(k client.SSHKey) []string {
			return []string{Described(k.ID.String(), k.Name)}
		})
}

// QueryTerms completes the last term of an offer query: a field first, then its operators.
func QueryTerms(_ *cobra.Command, _ []string, word string) ([]string, cobra.ShellCompDirective) {
	before := ""
	if i := strings.LastIndexByte(word, ' '); i >= 0 {
		before = word[:i+1]
	}
	typed := word[len(before):]
	var out []string
	for _, f := range query.Fields {
		switch {
		case typed == f.Name && f.IsNumber():
			out = append(out, before+f.Name+"=", before+f.Name+">=", before+f.Name+"<=")
		case typed == f.Name:
			out = append(out, before+f.Name+"=")
		case strings.HasPrefix(f.Name, typed):
			out = append(out, before+f.Name)
		}
	}
	return out, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
}
