package admin

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/musterhq/muster/internal/cli/base"
)

func adminDeadLetters(s *base.Session) *cobra.Command {
	return &cobra.Command{
		Use:   "dead-letters",
		Short: "List rows that a background job cannot process, longest failing first",
		Args:  base.Exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			all, err := s.Client(cmd).Admin.ListDeadLetters(cmd.Context())
			rows := all.Items
			return s.Result(cmd, rows, err, func(p *base.Printer) {
				if len(rows) == 0 {
					p.Line("Every background job gets on.")
					return
				}
				table := make([][]string, len(rows))
				for i, r := range rows {
					table[i] = []string{base.When(r.Since), r.Queue, r.Ref, fmt.Sprint(r.Attempts), r.Error}
				}
				p.List("rows that fail", []string{"FAILING SINCE", "JOB", "ROW", ">ATTEMPTS", "LAST ERROR"}, table)
			})
		},
	}
}
