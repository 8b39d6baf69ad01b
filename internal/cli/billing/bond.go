package billing

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/cli/base"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
)

// HostBond is muster host bond.
func HostBond(s *base.Session) *cobra.Command {
	return base.Noun("bond", "Manage the money that pays other operators when your host fails",
		bondShow(s), bondMove(s, "deposit", "Move paid credit from your balance into the bond"),
		bondMove(s, "withdraw", "Take out of the bond what is not reserved"), bondSet(s), bondLimit(s), bondLiability(s),
		bondSuspensions(s))
}

func bondShow(s *base.Session) *cobra.Command {
	return &cobra.Command{
		Use: "show", Short: "Show the bond: free, reserved, terms, and standby that it paid", Args: base.Exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			b, err := s.Client(cmd).Bond.Get(cmd.Context())
			return s.Result(cmd, b, err, func(p *base.Printer) { printBond(p, b) })
		},
	}
}

func printBond(p *base.Printer, b client.Bond) {
	in, limit, accept := " "+b.Currency, "none", "no"
	if b.Terms.LiabilityMax != nil {
		limit = base.Nano(*b.Terms.LiabilityMax) + in
	}
	if b.Terms.AcceptUnbonded {
		accept = "yes"
	}
	free := base.Nano(b.Free) + in
	if b.Claimed > 0 {
		free += ", of which " + base.Nano(b.Claimed) + " are held back for disputed payments and reviews"
	}
	p.Facts("Free", free, "Reserved", base.Nano(b.Reserved)+in, "Deposited", base.Nano(b.Deposited)+in+
		", out of your balance",
		"Could be deposited", base.Nano(b.Depositable)+in, "Retained", strconv.FormatFloat(float64(b.Terms.RetainPPM)/10_000,
			'f',
			-1, 64)+" % of what matures",
		"Limit of a lease", limit, "Accepts hosts without a bond", accept)
	if len(b.Leases) > 0 {
		rows := make([][]string, len(b.Leases))
		for i, l := range b.Leases {
			rows[i] = []string{l.Cluster.String(), strconv.Itoa(l.Rank), l.HostName, base.Nano(l.Liable), base.Nano(l.Left)}
		}
		p.Line("")
		p.Table([]string{"CLUSTER", "RANK", "HOST", ">LIABLE FOR", ">RESERVED"}, rows)
	}
	if len(b.Standby)+len(b.Relief) == 0 {
		return
	}
	var rows [][]string
	for _, x := range b.Standby {
		what, amount := "stood by for rank "+strconv.Itoa(x.CulpritRank), "+"+base.Nano(x.HostPart)
		if !x.Received {
			what, amount = "failed, rank "+strconv.Itoa(x.VictimRank)+" stood by", "-"+base.Nano(x.Amount)
		}
		rows = append(rows, []string{base.When(x.At), x.Cluster.String(), x.HostName, what,
			base.Millis(x.Millis), amount})
	}
	for _, x := range b.Relief {
		rows = append(rows, []string{base.When(x.At), x.Cluster.String(), x.HostName, "stood by, no host is to blame",
			base.Millis(x.Millis), "+" + base.Nano(x.Amount)})
	}
	p.Line("")
	p.Table([]string{"WHEN", "CLUSTER", "HOST", "WHAT", ">FOR", ">AMOUNT"}, rows)
	p.Line("Reasons and evidence: muster host bond suspensions CLUSTER")
}

func bondMove(s *base.Session, verb, short string) *cobra.Command {
	return &cobra.Command{
		Use: verb + " AMOUNT", Short: short, Args: base.Exactly("AMOUNT"), Example: "  muster host bond " + verb + " 25",
		RunE: func(cmd *cobra.Command, args []string) error {
			c := s.Client(cmd)
			if verb == "deposit" {
				b, err := c.Bond.Deposit(cmd.Context(), client.BondAmount{Amount: args[0]})
				return s.Result(cmd, b, err, func(p *base.Printer) {
					p.Line("%s %s of your bond are free now.", base.Nano(b.Free), b.Currency)
				})
			}
			w, err := c.Bond.Withdraw(cmd.Context(), client.BondAmount{Amount: args[0]})
			return s.Result(cmd, w, err, func(p *base.Printer) {
				p.Line("%s %s went back to your balance, %s are payable.", base.Nano(w.ToBalance), w.Bond.Currency,
					base.Nano(w.ToPayable))
			})
		},
	}
}

func bondSet(s *base.Session) *cobra.Command {
	var percent float64
	var accept bool
	var limit string
	cmd := &cobra.Command{
		Use:     "set",
		Short:   "Set the bond's terms: share retained, neighbours accepted, liability of a lease",
		Args:    base.Exactly(),
		Example: "  muster host bond set --retain 10 --limit 25",
		RunE: func(cmd *cobra.Command, _ []string) error {
			var in client.ChangeBondTermsRequest
			if cmd.Flags().Changed("retain") {
				ppm := int64(percent * 10_000)
				in.RetainPPM = &ppm
			}
			if cmd.Flags().Changed("accept-unbonded") {
				in.AcceptUnbonded = &accept
			}
			if cmd.Flags().Changed("limit") {
				in.LiabilityMax = &limit
			}
			b, err := s.Client(cmd).Bond.ChangeTerms(cmd.Context(), in)
			return s.Result(cmd, b, err, func(p *base.Printer) { printBond(p, b) })
		},
	}
	cmd.Flags().Float64Var(&percent, "retain", 0, "percent of maturing earnings that is kept until the bond is what "+
		"10 hours of your GPUs usually cost")
	cmd.Flags().BoolVar(&accept, "accept-unbonded", false,
		"let hosts without a bond join yours where the renter allows it")
	cmd.Flags().StringVar(&limit, "limit", "", "the most that one lease may be liable for, or none")
	return cmd
}

func bondLimit(s *base.Session) *cobra.Command {
	return &cobra.Command{
		Use:     "limit HOST AMOUNT",
		Example: "  muster host bond limit rack-7-a 25\n  muster host bond limit rack-7-a none",
		Short:   "Set the most that one lease of a host may be liable for, or none",
		Args:    base.Exactly("HOST", "AMOUNT"),
		RunE: func(cmd *cobra.Command, args []string) error {
			c := s.Client(cmd)
			h, err := base.FindHost(cmd.Context(), c, args[0])
			if err != nil {
				return err
			}
			b, err := c.Bond.ChangeHostLiability(cmd.Context(), h, client.ChangeHostLiabilityRequest{LiabilityMax: args[1]})
			return s.Result(cmd, b, err, func(p *base.Printer) { printBond(p, b) })
		},
	}
}

func bondLiability(s *base.Session) *cobra.Command {
	var nodes int
	var price string
	cmd := &cobra.Command{
		Use: "liability", Short: "Show what a lease would be liable for in a gang, before it is rented", Args: base.Exactly(),
		Example: "  muster host bond liability --nodes 8 --price 20",
		RunE: func(cmd *cobra.Command, _ []string) error {
			l, err := s.Client(cmd).Bond.GetLiability(cmd.Context(), client.LiabilityQuery{Nodes: nodes, Price: price})
			return s.Result(cmd, l, err, func(p *base.Printer) {
				p.Line("In a cluster of %d nodes at %s per hour each, a lease is liable for at most %s.", l.Nodes, price,
					base.Nano(l.Amount))
			})
		},
	}
	cmd.Flags().IntVar(&nodes, "nodes", 2, "nodes of the cluster, all of different operators")
	cmd.Flags().StringVar(&price, "price", "", "price per hour of each of the other nodes")
	return cmd
}

func bondSuspensions(s *base.Session) *cobra.Command {
	return &cobra.Command{
		Use:     "suspensions CLUSTER",
		Example: "  muster host bond suspensions cl_…",
		Short:   "Time of a gang with a host of yours that its renter did not pay for, with the reason and the evidence",
		Args:    base.Exactly("CLUSTER"),
		RunE: func(cmd *cobra.Command, args []string) error {
			cl, err := id.Parse[id.Cluster](args[0])
			if err != nil || cl.IsZero() {
				return fault.New(fault.Invalid, "%q is not the id of a cluster; muster host bond show lists them", args[0])
			}
			page, err := s.Client(cmd).Bond.ListSuspensions(cmd.Context(), cl)
			if err != nil {
				return err
			}
			return s.Show(cmd, page.Items, func(p *base.Printer) {
				if len(page.Items) == 0 {
					p.Line("No time of this cluster was suspended, or it is not decided yet.")
				}
				for _, x := range page.Items {
					p.Line("%s, %.1f s: %s", base.When(x.From), x.To.Sub(x.From).Seconds(), x.Why)
					for _, e := range x.Evidence {
						what := fmt.Sprintf("rank %d  %s", e.Rank, strings.ReplaceAll(e.Kind, "_", " "))
						if e.Peer != nil {
							what += fmt.Sprintf(" rank %d", *e.Peer)
						}
						p.Line("  %s–%s  %s", e.From.UTC().Format("15:04:05.000"), e.To.UTC().Format("15:04:05.000"), what)
					}
				}
			})
		},
	}
}
