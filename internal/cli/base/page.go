package base

import (
	"github.com/spf13/cobra"

	"github.com/musterhq/muster/client"
)

// PageFlags are the flags of every command that lists: how many items, and after which one.
type PageFlags struct {
	limit int
	after string
}

// Flags adds --limit and --after to cmd; what names the items of the list.
func (f *PageFlags) Flags(cmd *cobra.Command, what string) {
	cmd.Flags().IntVar(&f.limit, "limit", 50, what+" at most")
	cmd.Flags().StringVar(&f.after, "after", "", "next of the page before")
}

// Of returns the page that the flags ask for.
func (f *PageFlags) Of() client.PageOf { return client.PageOf{Limit: f.limit, After: f.after} }

// PrintNext prints how to list the next page, if there is one.
func PrintNext(p *Printer, next *string) {
	if next != nil {
		p.Line("More: --after %s", *next)
	}
}
