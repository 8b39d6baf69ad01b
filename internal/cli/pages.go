package cli

import (
	"github.com/spf13/cobra"

	"github.com/musterhq/muster/client"
)

// pageFlags are those of every list.
type pageFlags struct {
	limit int
	after string
}

func (f *pageFlags) flags(cmd *cobra.Command, what string) {
	cmd.Flags().IntVar(&f.limit, "limit", 50, what+" at most")
	cmd.Flags().StringVar(&f.after, "after", "", "next of the page before")
}

func (f *pageFlags) of() client.PageOf { return client.PageOf{Limit: f.limit, After: f.after} }

func printNext(p *printer, next *string) {
	if next != nil {
		p.line("More: --after %s", *next)
	}
}
