package cli

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
)

func quoteCommand(s *shell) *cobra.Command {
	var f specFlags
	cmd := &cobra.Command{
		Use:   "quote",
		Short: "Get an all-in price for a cluster and claim its GPUs for a short time",
		Example: `  muster quote --nodes 2 --gpus 4 --gpu gpu_model=H100
  muster cluster create --quote q_… --image pytorch/pytorch:2.4.0 -- python train.py`,
		Args: exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			spec, err := f.spec(cmd, nil)
			if err != nil {
				return err
			}
			q, err := s.client(cmd).Quote(cmd.Context(), spec)
			return s.result(cmd, q, err, func(p *printer) { printQuote(p, q) })
		},
	}
	f.register(cmd)
	cmd.AddCommand(quoteShow(s), quoteReturn(s))
	return cmd
}

func quoteShow(s *shell) *cobra.Command {
	return &cobra.Command{
		Use: "show QUOTE", Short: "Show a quote", Args: exactly("QUOTE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return s.withQuote(cmd, args[0], func(c *client.Client, q id.Quote) (client.Quote,
				error) {
				return c.GetQuote(cmd.Context(), q)
			})
		},
	}
}

func quoteReturn(s *shell) *cobra.Command {
	return &cobra.Command{
		Use: "return QUOTE", Short: "Cancel a quote and free its GPUs", Args: exactly("QUOTE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return s.withQuote(cmd, args[0], func(c *client.Client, q id.Quote) (client.Quote,
				error) {
				return c.ReturnQuote(cmd.Context(), q)
			})
		},
	}
}

func (s *shell) withQuote(cmd *cobra.Command, arg string, f func(*client.Client, id.Quote) (client.Quote,
	error)) error {
	q, err := id.Parse[id.Quote](arg)
	if err != nil {
		return fault.New(fault.Invalid, "want the id of a quote, q_…")
	}
	v, err := f(s.client(cmd), q)
	return s.result(cmd, v, err, func(p *printer) { printQuote(p, v) })
}

func printQuote(p *printer, q client.Quote) {
	p.line("%s per hour all-in (%s %s per second)", micro(q.PricePerHour), q.PricePerSecond, q.Currency)
	rows := make([][]string, len(q.Lines))
	for i, l := range q.Lines {
		rows[i] = []string{fmt.Sprint(l.Rank), l.Text, fmt.Sprint(l.Quantity), micro(l.UnitPrice), micro(l.Price)}
	}
	p.table([]string{">NODE", "WHAT", ">QUANTITY", ">EACH PER HOUR", ">PER HOUR"}, rows)
	switch q.State {
	case "held":
		p.line("Held until %s (%s). Rent it: muster cluster create --quote %s --image IMAGE", when(q.ExpiresAt),
			time.Until(q.ExpiresAt).Round(time.Second), q.ID)
	case "rented":
		if q.ClusterID != nil {
			p.line("Rented as %s.", q.ClusterID)
		}
	default:
		p.line("The quote is %s.", q.State)
	}
}
