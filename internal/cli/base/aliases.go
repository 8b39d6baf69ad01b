package base

import (
	"slices"

	"github.com/spf13/cobra"
)

// otherNames are the other names of commands with a name. A command that has aliases of its own keeps them.
var otherNames = map[string][]string{
	"list":   {"ls"},
	"show":   {"get", "describe"},
	"remove": {"rm", "delete"},
	"delete": {"rm", "remove"},
	"revoke": {"rm", "delete"},
	"create": {"new"},

	"cluster": {"clusters"},
	"host":    {"hosts"},
	"offers":  {"offer", "market"},
	"quote":   {"quotes"}, "budget": {"budgets"},
	"token": {"tokens"}, "ssh-key": {"ssh-keys", "key", "keys"},
	"template": {"templates"},
	"volume":   {"volumes", "vol"},
	"bucket":   {"buckets"},
	"shared":   {"sharedfs"},
	"profile":  {"profiles"}, "org": {"orgs"},
	"payout": {"payouts"}, "document": {"documents"},
	"members": {"member"}, "cards": {"card"}, "sessions": {"session"},
}

// AddAliases gives a command and all below it the usual other names, wherever no other command beside it has that name.
func AddAliases(cmd *cobra.Command) {
	for _, sub := range cmd.Commands() {
		AddAliases(sub)
	}
	taken := []string{}
	for _, sub := range cmd.Commands() {
		taken = append(append(taken, sub.Name()), sub.Aliases...)
	}
	for _, sub := range cmd.Commands() {
		for _, alias := range otherNames[sub.Name()] {
			if !slices.Contains(taken, alias) {
				sub.Aliases = append(sub.Aliases, alias)
				taken = append(taken, alias)
			}
		}
	}
}
