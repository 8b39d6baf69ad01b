package cli

import (
	"fmt"

	"github.com/spf13/cobra"
)

func adminDeadLetters(s *shell) *cobra.Command {
	return &cobra.Command{
		Use: "dead-letters", Short: "List rows that a background job cannot process, longest failing first", Args: exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			rows, err := s.client(cmd).DeadLetters(cmd.Context())
			return s.result(cmd, rows, err, func(p *printer) {
				if len(rows) == 0 {
					p.line("Every background job gets on.")
					return
				}
				table := make([][]string, len(rows))
				for i, r := range rows {
					table[i] = []string{when(r.Since), r.Queue, r.Ref, fmt.Sprint(r.Attempts), r.Error}
				}
				p.table([]string{"FAILING SINCE", "JOB", "ROW", ">ATTEMPTS", "LAST ERROR"}, table)
			})
		},
	}
}
