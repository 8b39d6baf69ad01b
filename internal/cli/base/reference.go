package base

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// Reference returns a page of Markdown about each command of the program, with all commands below it, by the command's
// name. The texts are those of its help.
func Reference(root *cobra.Command) map[string]string {
	pages := map[string]string{}
	for _, cmd := range root.Commands() {
		if !cmd.IsAvailableCommand() || cmd.Name() == "help" || cmd.Name() == "completion" {
			continue
		}
		var b strings.Builder
		fmt.Fprintf(&b, "# %s\n\n%s.\n", cmd.CommandPath(), escape(strings.TrimSuffix(cmd.Short, ".")))
		describe(&b, cmd)
		for _, sub := range cmd.Commands() {
			describeBelow(&b, sub)
		}
		if flags := cmd.PersistentFlags(); flags.HasAvailableFlags() && cmd.HasSubCommands() {
			b.WriteString("\n## Flags of all these commands\n")
			table(&b, flags)
		}
		pages[cmd.Name()] = b.String()
	}
	return pages
}

// describeBelow describes a command and those below it, each under a heading of its own.
func describeBelow(b *strings.Builder, cmd *cobra.Command) {
	if !cmd.IsAvailableCommand() || cmd.Name() == "help" {
		return
	}
	fmt.Fprintf(b, "\n## %s\n\n%s.\n", cmd.CommandPath(), escape(strings.TrimSuffix(cmd.Short, ".")))
	describe(b, cmd)
	for _, sub := range cmd.Commands() {
		describeBelow(b, sub)
	}
}

// describe writes what a command does, how it is used, examples and its own flags.
func describe(b *strings.Builder, cmd *cobra.Command) {
	if cmd.Long != "" && cmd.Long != cmd.Short {
		prose(b, cmd.Long)
	}
	if onlyGroups := cmd.HasSubCommands() && cmd.Long == "" && cmd.Example == ""; cmd.Runnable() && !onlyGroups {
		usage := strings.TrimSuffix(cmd.UseLine(), " [flags]")
		if cmd.HasAvailableLocalFlags() {
			usage += " [flags]"
		}
		block(b, usage)
	}
	if len(cmd.Aliases) > 0 {
		fmt.Fprintf(b, "\nAlso: `%s`.\n", strings.Join(cmd.Aliases, "`, `"))
	}
	if cmd.Example != "" {
		b.WriteString("\nExamples:\n")
		block(b, cmd.Example)
	}
	if flags := cmd.LocalNonPersistentFlags(); hasOwn(flags) {
		table(b, flags)
	}
}

// hasOwn reports whether a command has a flag other than --help.
func hasOwn(flags *pflag.FlagSet) bool {
	own := false
	flags.VisitAll(func(f *pflag.Flag) { own = own || !f.Hidden && f.Name != "help" })
	return own
}

// table writes flags with what they mean.
func table(b *strings.Builder, flags *pflag.FlagSet) {
	b.WriteString("\n| flag | meaning |\n| --- | --- |\n")
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Hidden || f.Name == "help" {
			return
		}
		kind, usage := pflag.UnquoteUsage(f)
		name := "--" + f.Name
		if f.Shorthand != "" {
			name = "-" + f.Shorthand + ", " + name
		}
		if kind != "" {
			name += " " + kind
		}
		if d := f.DefValue; d != "" && d != "0" && d != "false" && d != "[]" && !strings.Contains(usage, "default") {
			usage += " (default " + d + ")"
		}
		fmt.Fprintf(b, "| `%s` | %s |\n", name, strings.ReplaceAll(escape(usage), "|", `\|`))
	})
}

// prose writes paragraphs; indented lines become a block of code.
func prose(b *strings.Builder, s string) {
	for p := range strings.SplitSeq(s, "\n\n") {
		if strings.HasPrefix(p, "  ") {
			block(b, p)
		} else {
			fmt.Fprintf(b, "\n%s\n", escape(p))
		}
	}
}

// block writes a block of code, without the indentation that all its lines share.
func block(b *strings.Builder, s string) {
	lines := strings.Split(strings.Trim(s, "\n"), "\n")
	indent := -1
	for _, l := range lines {
		if rest := strings.TrimLeft(l, " "); rest != "" && (indent < 0 || len(l)-len(rest) < indent) {
			indent = len(l) - len(rest)
		}
	}
	b.WriteString("\n```\n")
	for _, l := range lines {
		b.WriteString(strings.TrimRight(l[min(max(indent, 0), len(l)):], " ") + "\n")
	}
	b.WriteString("```\n")
}

// escape makes a text of a help read the same in Markdown.
func escape(s string) string {
	return strings.NewReplacer(`\`, `\\`, "*", `\*`, "<", `\<`, "`", "\\`", "[", `\[`).Replace(s)
}
