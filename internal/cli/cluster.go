package cli

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
)

func clusterCommand(s *shell) *cobra.Command {
	return noun("cluster", "Rent, watch and release clusters",
		clusterCreate(s), clusterList(s), clusterShow(s), clusterWait(s), clusterLogs(s), clusterSSH(s), clusterExec(s),
		clusterCopy(s), clusterForward(s), clusterOpen(s), clusterEvents(s), clusterUsage(s),
		clusterRestart(s), clusterRelease(s))
}

// onCluster is a command about one cluster.
func onCluster(s *shell, use, short string, f func(*cobra.Command, *client.Client, id.Cluster) error) *cobra.Command {
	return &cobra.Command{
		Use: use + " CLUSTER", Short: short, Args: exactly("CLUSTER"),
		RunE: func(cmd *cobra.Command, args []string) error {
			c := s.client(cmd)
			cl, err := findCluster(cmd.Context(), c, args[0])
			if err != nil {
				return err
			}
			return f(cmd, c, cl)
		},
	}
}

func clusterCreate(s *shell) *cobra.Command {
	var f specFlags
	var quote string
	var wait bool
	cmd := &cobra.Command{
		Use:   "create [flags] [-- COMMAND ARGUMENT…]",
		Short: "Rent a cluster",
		Long: `Rent a cluster: all nodes or none. Seconds count once every rank runs; a start that fails is free.

With --quote the placement and the price are the quote's.`,
		Example: `  muster cluster create --name train --nodes 2 --gpus 4 --gpu gpu_model=H100 \
      --image pytorch/pytorch:2.4.0 --max-duration 2h --budget 20 --wait -- python train.py
  muster cluster create --quote q_… --image pytorch/pytorch:2.4.0
  muster cluster create -f spec.json -o json`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 && cmd.ArgsLenAtDash() != 0 {
				return fault.New(fault.Invalid, "put -- before the command that is to run: muster cluster create … -- %s",
					strings.Join(args, " "))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			c := s.client(cmd)
			spec, err := f.spec(cmd, args)
			if err != nil {
				return err
			}
			v, err := rent(cmd.Context(), c, quote, spec)
			if err != nil {
				return err
			}
			if wait {
				return s.waitFor(cmd, c, v.ID, client.Running)
			}
			return s.show(cmd, v, func(p *printer) {
				p.line("%s is being started: %s per hour, from the second every rank runs.", v.ID, micro(v.PricePerHour))
				p.line("Watch it: muster cluster wait %s; its output: muster cluster logs %s --follow", v.ID, v.ID)
			})
		},
	}
	f.register(cmd)
	cmd.Flags().StringVar(&quote, "quote", "", "rent what this quote holds")
	cmd.Flags().BoolVar(&wait, "wait", false, "stay until it is running, and show how it comes up")
	return cmd
}

func rent(ctx context.Context, c *client.Client, quote string, spec client.Spec) (client.Cluster, error) {
	if quote == "" {
		return c.Rent(ctx, spec)
	}
	q, err := id.Parse[id.Quote](quote)
	if err != nil {
		return client.Cluster{}, fault.New(fault.Invalid, "--quote wants the id of a quote, q_…")
	}
	return c.RentQuote(ctx, q, spec)
}

func clusterList(s *shell) *cobra.Command {
	var state, after string
	var limit int
	cmd := &cobra.Command{
		Use: "list", Short: "List your clusters, newest first", Args: exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			page, err := s.client(cmd).Clusters(cmd.Context(), client.State(state), client.PageOf{Limit: limit, After: after})
			return s.result(cmd, page, err, func(p *printer) { printClusters(p, page) })
		},
	}
	cmd.Flags().StringVar(&state, "state", "", "only clusters in this state")
	cmd.Flags().IntVar(&limit, "limit", 50, "clusters at most")
	cmd.Flags().StringVar(&after, "after", "", "next of the page before")
	return cmd
}

func printClusters(p *printer, page client.Page[client.Cluster]) {
	if len(page.Items) == 0 {
		p.line("No clusters. Rent one: muster cluster create --help")
		return
	}
	rows := make([][]string, len(page.Items))
	for i, c := range page.Items {
		rows[i] = []string{
			c.ID.String(), c.Name, string(c.State), c.Reason, fmt.Sprintf("%d × %d", len(c.Nodes), gpusOf(c)),
			micro(c.PricePerHour), nano(c.CostSoFar), when(c.CreatedAt),
		}
	}
	p.table([]string{"ID", "NAME", "STATE", "REASON", ">NODES × GPUS", ">PER HOUR", ">COST", "CREATED"}, rows)
	if page.Next != nil {
		p.line("More: --after %s", *page.Next)
	}
}

func gpusOf(c client.Cluster) int {
	if len(c.Nodes) == 0 {
		return 0
	}
	return len(c.Nodes[0].GPUs)
}

func clusterShow(s *shell) *cobra.Command {
	return onCluster(s, "show", "Look at a cluster", func(cmd *cobra.Command, c *client.Client, cl id.Cluster) error {
		v, err := c.Cluster(cmd.Context(), cl)
		return s.result(cmd, v, err, func(p *printer) { printCluster(p, v) })
	})
}

func printCluster(p *printer, c client.Cluster) {
	busbw := ""
	if c.Network.BusbwGbps > 0 {
		busbw = fmt.Sprintf("%.1f Gbps all-reduce, measured at the start", c.Network.BusbwGbps)
		if c.Network.OfferedGbps > 0 {
			busbw += fmt.Sprintf(" (the offers say %.1f)", c.Network.OfferedGbps)
		}
	}
	replacing := ""
	if r := c.Replacing; r != nil {
		replacing = fmt.Sprintf("rank %s, until %s", strings.Trim(strings.ReplaceAll(fmt.Sprint(r.Ranks), " ", ", "), "[]"),
			when(r.Until))
	}
	doubt := ""
	if c.Doubt != nil {
		doubt = c.Doubt.Why
	}
	p.facts("Cluster", c.ID.String(), "Name", c.Name, "State", string(c.State), "Reason", c.Reason, "", c.Detail, "Image",
		c.Spec.Image, "Pinned to", c.ImageDigest,
		"Price", micro(c.PricePerHour)+" per hour", "Cost so far", nano(c.CostSoFar)+" "+c.Currency, "Billable",
		c.BillableSeconds.String()+" s",
		"Created", when(c.CreatedAt), "Running", whenPtr(c.RunningAt), "Ended", whenPtr(c.EndedAt), "Paid until",
		whenPtr(c.RunUntil),
		"Not billed", doubt, "Another host", replacing, "Network", busbw, "You can", strings.Join(c.Actions, ", "))
	p.line("")
	rows := make([][]string, len(c.Nodes))
	for i, n := range c.Nodes {
		rows[i] = []string{fmt.Sprint(n.Rank), n.State, fmt.Sprint(len(n.GPUs)), modelOf(n), n.Address,
			cmp.Or(n.HostName, n.HostID.Short()), progressOf(n)}
	}
	p.table([]string{">RANK", "STATE", ">GPUS", "MODEL", "ADDRESS", "HOST", ""}, rows)
}

func modelOf(n client.Node) string {
	if len(n.GPUs) == 0 {
		return ""
	}
	return n.GPUs[0].Model
}

func clusterEvents(s *shell) *cobra.Command {
	return onCluster(s, "events", "What happened, when, why", func(cmd *cobra.Command, c *client.Client,
		cl id.Cluster) error {
		all, err := client.All(cmd.Context(), func(ctx context.Context, p client.PageOf) (client.Page[client.Event], error) {
			return c.Events(ctx, cl, p)
		})
		if err != nil {
			return err
		}
		return s.show(cmd, all, func(p *printer) {
			rows := make([][]string, len(all))
			for i, e := range all {
				rank := ""
				if e.Rank != nil {
					rank = fmt.Sprint(*e.Rank)
				}
				rows[i] = []string{when(e.At), rank, e.Title, e.Detail}
			}
			p.table([]string{"WHEN", ">RANK", "WHAT", "WHY"}, rows)
		})
	})
}

func clusterUsage(s *shell) *cobra.Command {
	return onCluster(s, "usage", "What it used and costs, segment by segment", func(cmd *cobra.Command, c *client.Client,
		cl id.Cluster) error {
		u, err := c.Usage(cmd.Context(), cl)
		return s.result(cmd, u, err, func(p *printer) {
			rows := make([][]string, len(u.Segments))
			for i, l := range u.Segments {
				rows[i] = []string{fmt.Sprint(l.Rank), when(l.From), when(l.To), l.Seconds.String(), fmt.Sprint(l.GPUs),
					micro(l.PricePerHour), l.Cost.String()}
			}
			p.table([]string{">RANK", "FROM", "TO", ">SECONDS", ">GPUS", ">PER HOUR", ">COST"}, rows)
			for _, x := range u.Credits {
				p.line("Credited: %s %s for rank %d on %s (%s), its time from %s to %s is free.", x.Amount, u.Currency, x.Rank,
					x.HostName, x.Reason, when(x.From), when(x.To))
			}
			for _, x := range u.NotBilled {
				p.line("%s, %s s not billed: %s.", when(x.From), x.Seconds, x.Why)
			}
			state := "more may still be proven"
			if u.Settled {
				state = "settled"
			}
			p.line("%s billable seconds, %s GPU-seconds, %s Wh: %s %s (%s)", u.BillableSeconds, u.GPUSeconds, u.EnergyWh, u.Cost,
				u.Currency, state)
		})
	})
}

func clusterRestart(s *shell) *cobra.Command {
	return onCluster(s, "restart", "Stop the command on every rank and start it again",
		func(cmd *cobra.Command, c *client.Client, cl id.Cluster) error {
			v, err := c.Act(cmd.Context(), cl, "restart")
			return s.result(cmd, v, err, func(p *printer) {
				p.line("%s is starting again; billing is suspended until every rank runs.",
					v.ID)
			})
		})
}

func clusterRelease(s *shell) *cobra.Command {
	var wait bool
	cmd := onCluster(s, "release", "End a cluster; nothing after this moment is billed",
		func(cmd *cobra.Command, c *client.Client, cl id.Cluster) error {
			v, err := c.Release(cmd.Context(), cl)
			if err != nil {
				return err
			}
			if wait && v.State == client.Releasing {
				return s.waitFor(cmd, c, cl, client.Released)
			}
			return s.show(cmd, v, func(p *printer) {
				p.line("%s is %s. Cost: %s %s", v.ID, v.State, nano(v.CostSoFar), v.Currency)
			})
		})
	cmd.Flags().BoolVar(&wait, "wait", false, "stay until its hosts are clean")
	return cmd
}
