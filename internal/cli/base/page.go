package base

import (
	"github.com/kballard/go-shellquote"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/musterhq/muster/client"
)

// PageFlags are the flags of every command that lists: how many items, and after which one.
type PageFlags struct {
	limit int
	after string
}

// Flags adds --limit and --after to cmd; what names the items of the list.
func (f *PageFlags) Flags(cmd *cobra.Command, what string) {
	cmd.Flags().IntVar(&f.limit, "limit", 50, "how many "+what+" to list at most")
	cmd.Flags().StringVar(&f.after, "after", "", "continue after this item, which the page before named")
}

// Of returns the page that the flags select.
func (f *PageFlags) Of() client.PageOf { return client.PageOf{Limit: f.limit, After: f.after} }

// PrintNext prints the command that lists the next page, if there is one.
func PrintNext(p *Printer, next *string) {
	if next != nil {
		p.Line("More: %s", commandLine(p.cmd, "after", *next))
	}
}

// commandLine returns the command line that was typed for cmd, with one flag set to value.
func commandLine(cmd *cobra.Command, flag, value string) string {
	var words []string
	cmd.Flags().Visit(func(f *pflag.Flag) {
		if f.Name == flag {
			return
		}
		values := []string{f.Value.String()}
		if list, ok := f.Value.(pflag.SliceValue); ok {
			values = list.GetSlice()
		}
		for _, v := range values {
			if f.Value.Type() == "bool" {
				words = append(words, "--"+f.Name+"="+v)
			} else {
				words = append(words, "--"+f.Name, v)
			}
		}
	})
	words = append(append(words, "--"+flag, value), cmd.Flags().Args()...)
	return cmd.CommandPath() + " " + shellquote.Join(words...)
}
