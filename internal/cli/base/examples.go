package base

import (
	"strings"

	"github.com/spf13/cobra"
)

// AddExamples gives an example to each command below cmd that has none: those of the command's noun that show it, or,
// for a command without arguments, the command itself.
func AddExamples(cmd *cobra.Command) {
	for _, sub := range cmd.Commands() {
		if sub.Example == "" && sub.Runnable() && !sub.HasSubCommands() {
			sub.Example = examplesAbove(sub)
			if names, _ := placeholders(sub.Use); sub.Example == "" && len(names) == 0 {
				sub.Example = "  " + sub.CommandPath()
			}
		}
		AddExamples(sub)
	}
}

// examplesAbove returns the examples of a command among those of the commands above it.
func examplesAbove(cmd *cobra.Command) string {
	var out []string
	for above := cmd.Parent(); above != nil; above = above.Parent() {
		for line := range strings.SplitSeq(above.Example, "\n") {
			if strings.HasPrefix(line+" ", "  "+cmd.CommandPath()+" ") {
				out = append(out, line)
			}
		}
	}
	return strings.Join(out, "\n")
}
