package cluster

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/cli/base"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
)

// QuoteCommand is muster quote.
func QuoteCommand(s *base.Session) *cobra.Command {
	f := specFlags{session: s}
	cmd := &cobra.Command{
		Use:   "quote",
		Short: "Get an all-in price for a cluster and claim its GPUs for a short time",
		Example: `  muster quote --nodes 2 --gpus 4 --gpu gpu_model=H100
  muster cluster create --quote q_… --image pytorch/pytorch:2.4.0 -- python train.py`,
		Args: base.Exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			spec, err := f.spec(cmd, nil)
			if err != nil {
				return err
			}
			q, err := s.Client(cmd).Quotes.Create(cmd.Context(), spec)
			return s.Result(cmd, q, err, func(p *base.Printer) { printQuote(p, q) })
		},
	}
	f.register(cmd)
	cmd.AddCommand(quoteShow(s), quoteReturn(s))
	return cmd
}

func quoteShow(s *base.Session) *cobra.Command {
	return &cobra.Command{
		Use: "show QUOTE", Short: "Show a quote", Args: base.Exactly("QUOTE"),
		Example: "  muster quote show q_…",
		RunE: func(cmd *cobra.Command, args []string) error {
			return withQuote(s, cmd, args[0], func(c *client.Client, q id.Quote) (client.Quote,
				error) {
				return c.Quotes.Get(cmd.Context(), q)
			})
		},
	}
}

func quoteReturn(s *base.Session) *cobra.Command {
	return &cobra.Command{
		Use: "return QUOTE", Short: "Cancel a quote and free its GPUs", Args: base.Exactly("QUOTE"),
		Example: "  muster quote return q_…",
		RunE: func(cmd *cobra.Command, args []string) error {
			return withQuote(s, cmd, args[0], func(c *client.Client, q id.Quote) (client.Quote,
				error) {
				return c.Quotes.Return(cmd.Context(), q)
			})
		},
	}
}

func withQuote(s *base.Session, cmd *cobra.Command, arg string, f func(*client.Client, id.Quote) (client.Quote,
	error)) error {
	q, err := id.Parse[id.Quote](arg)
	if err != nil {
		return fault.New(fault.Invalid, "want the id of a quote, q_…")
	}
	v, err := f(s.Client(cmd), q)
	return s.Result(cmd, v, err, func(p *base.Printer) { printQuote(p, v) })
}

// printPrice prints the price of a quote and what it is made of.
func printPrice(p *base.Printer, q client.Quote) {
	p.Line("%s per hour all-in (%s %s per second)", base.Micro(q.PricePerHour), q.PricePerSecond, q.Currency)
	rows := make([][]string, len(q.Lines))
	for i, l := range q.Lines {
		rows[i] = []string{fmt.Sprint(l.Rank), l.Text, fmt.Sprint(l.Quantity), base.Micro(l.UnitPrice), base.Micro(l.Price)}
	}
	p.Table([]string{">NODE", "WHAT", ">QUANTITY", ">EACH PER HOUR", ">PER HOUR"}, rows)
}

func printQuote(p *base.Printer, q client.Quote) {
	printPrice(p, q)
	switch q.State {
	case "held":
		image := ""
		if q.Spec.Image == "" {
			image = " --image IMAGE"
		}
		p.Line("Held until %s (%s). Rent it: muster cluster create --quote %s%s", base.When(q.ExpiresAt),
			time.Until(q.ExpiresAt).Round(time.Second), q.ID, image)
	case "rented":
		if q.ClusterID != nil {
			p.Line("Rented as %s.", q.ClusterID)
		}
	default:
		p.Line("The quote is %s.", q.State)
	}
}
