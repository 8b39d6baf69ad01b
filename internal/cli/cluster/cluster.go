// Package cluster holds the commands that find, rent and use clusters.
package cluster

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/kballard/go-shellquote"
	"github.com/spf13/cobra"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/cli/base"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
)

// Command is muster cluster.
func Command(s *base.Session) *cobra.Command {
	cmd := base.Noun("cluster", "Rent, watch and release clusters",
		clusterCreate(s), clusterPlan(s), clusterApply(s), clusterList(s), clusterShow(s), clusterWait(s), clusterLogs(s),
		clusterSSH(s), clusterExec(s),
		clusterCopy(s), clusterForward(s), clusterOpen(s), clusterEvents(s), clusterUsage(s), clusterMetrics(s),
		clusterRestart(s), clusterRelease(s))
	cmd.Aliases = []string{"clusters"}
	return cmd
}

// onCluster is a command about one cluster.
func onCluster(s *base.Session, use, short string,
	f func(*cobra.Command, *client.Client, id.Cluster) error) *cobra.Command {
	return &cobra.Command{
		Use: use + " CLUSTER", Short: short, Args: base.Exactly("CLUSTER"), Example: "  muster cluster " + use + " train",
		RunE: func(cmd *cobra.Command, args []string) error {
			c := s.Client(cmd)
			cl, err := base.FindCluster(cmd.Context(), c, args[0])
			if err != nil {
				return err
			}
			return f(cmd, c, cl)
		},
	}
}

func clusterCreate(s *base.Session) *cobra.Command {
	f := specFlags{session: s}
	var quote string
	var wait bool
	cmd := &cobra.Command{
		Use:   "create [flags] [-- COMMAND ARGUMENT…]",
		Short: "Rent a cluster",
		Long: `Rent a cluster: all nodes or none. Billing begins when every node runs. A start that fails is free.

With --quote you rent the GPUs of that quote at its price.

` + envFormat,
		Example: `  muster cluster create --name train --nodes 2 --gpus 4 --gpu gpu_model=H100 \
      --image pytorch/pytorch:2.4.0 --max-duration 2h --budget 20 --wait -- python train.py
  muster cluster create --quote q_… --image pytorch/pytorch:2.4.0
  muster cluster create -f train.yaml -o json`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 && cmd.ArgsLenAtDash() != 0 {
				return fault.New(fault.Invalid, "put -- before the command to run: muster cluster create … -- %s",
					strings.Join(args, " "))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			c := s.Client(cmd)
			spec, err := f.spec(cmd, args)
			if err != nil {
				return err
			}
			v, err := rent(cmd.Context(), c, quote, spec)
			if err != nil {
				return err
			}
			if wait {
				return waitFor(s, cmd, c, v.ID, client.Running)
			}
			return s.Show(cmd, v, func(p *base.Printer) { printStarting(p, v) })
		},
	}
	f.register(cmd)
	cmd.Flags().StringVar(&quote, "quote", "", "rent at the price and on the GPUs of this quote")
	cmd.Flags().BoolVar(&wait, "wait", false, "wait until the cluster is running, and show its progress")
	return cmd
}

func printStarting(p *base.Printer, c client.Cluster) {
	p.Line("%s (%s) is starting. It costs %s per hour, from the moment every node runs.", c.Name, c.ID,
		base.Micro(c.PricePerHour))
	p.Line("Watch it: muster cluster wait %s", c.ID)
	p.Line("Read its output: muster cluster logs %s --follow", c.ID)
}

func rent(ctx context.Context, c *client.Client, quote string, spec client.Spec) (client.Cluster, error) {
	if quote == "" {
		return c.Clusters.Rent(ctx, spec)
	}
	q, err := id.Parse[id.Quote](quote)
	if err != nil {
		return client.Cluster{}, fault.New(fault.Invalid, "--quote must be the id of a quote, q_…")
	}
	return c.Clusters.RentQuote(ctx, q, spec)
}

func clusterList(s *base.Session) *cobra.Command {
	var f client.ClustersQuery
	cmd := &cobra.Command{
		Use: "list", Aliases: []string{"ls", "ps"}, Short: "List and search your clusters", Args: base.Exactly(),
		Example: `  muster cluster list --state active
  muster cluster list --query "train team=vision" --sort name`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			page, err := s.Client(cmd).Clusters.List(cmd.Context(), f)
			return s.Result(cmd, page, err, func(p *base.Printer) { printClusters(p, page, f) })
		},
	}
	cmd.Flags().StringVar(&f.State, "state", "", "only clusters in this state; active: not ended; ended: all others")
	cmd.Flags().StringVar(&f.Query, "query", "", "only clusters whose id, name, project, image or labels match all words")
	cmd.Flags().StringVar(&f.Sort, "sort", "", "created, name, price or project; with - before it, in reverse")
	cmd.Flags().IntVar(&f.Limit, "limit", 50, "clusters at most")
	cmd.Flags().StringVar(&f.After, "after", "", "continue after this item, which the page before named")
	return cmd
}

func printClusters(p *base.Printer, page client.Page[client.Cluster], f client.ClustersQuery) {
	if len(page.Items) == 0 && (f.State != "" || f.Query != "") {
		p.Line("%s", noneMatch(f))
		return
	}
	rows := make([][]string, len(page.Items))
	for i, c := range page.Items {
		rows[i] = []string{
			c.ID.String(), c.Name, string(c.State), c.Reason, fmt.Sprintf("%d × %d", len(c.Nodes), gpusOf(c)),
			base.Micro(c.PricePerHour), base.Cost(c.CostSoFar), base.When(c.CreatedAt), base.OrDash(c.Spec.Project),
			c.Spec.Image,
			base.OrDash(base.WhenPtr(c.RunningAt)), base.OrDash(base.WhenPtr(c.EndedAt)), base.OrDash(stopsOf(c)),
		}
	}
	p.TableOr("No clusters. Rent one: muster cluster create --help", []string{"ID", "NAME", "STATE", "REASON",
		">NODES × GPUS", ">PER HOUR", ">COST", "CREATED", "+PROJECT", "+IMAGE", "+RUNNING", "+ENDED", "+STOPS"}, rows)
	base.PrintNext(p, page.Next)
}

// noneMatch says that no cluster passes the filter.
func noneMatch(f client.ClustersQuery) string {
	const all = " List all: muster cluster list"
	what := "No cluster"
	switch {
	case f.State == "":
		return fmt.Sprintf("No cluster matches %q.", f.Query) + all
	case f.Query != "":
		what += fmt.Sprintf(" that matches %q", f.Query)
	}
	if f.State == "ended" {
		return what + " has ended." + all
	}
	return what + " is " + f.State + "." + all
}

func gpusOf(c client.Cluster) int {
	if len(c.Nodes) == 0 {
		return 0
	}
	return len(c.Nodes[0].GPUs)
}

func clusterShow(s *base.Session) *cobra.Command {
	return onCluster(s, "show", "Show a cluster", func(cmd *cobra.Command, c *client.Client, cl id.Cluster) error {
		v, err := c.Clusters.Get(cmd.Context(), cl)
		if err != nil {
			return err
		}
		var mounts []mounted
		if !s.ForPrograms() {
			if mounts, err = mountsOf(cmd.Context(), c, v); err != nil {
				return err
			}
		}
		return s.Show(cmd, v, func(p *base.Printer) { printCluster(p, v, mounts) })
	})
}

func printCluster(p *base.Printer, c client.Cluster, mounts []mounted) {
	busbw := ""
	rdma := ""
	if m := c.Network.RDMA; m != nil && m.Detail != "" {
		rdma = "not measured: " + m.Detail
	} else if m != nil {
		rdma = fmt.Sprintf("%.1f Gbps all-reduce by NCCL %s over %d ports, measured at the start", m.BusbwGbps,
			m.NCCL, m.Rails)
	}
	if c.Network.BusbwGbps > 0 {
		busbw = fmt.Sprintf("%.1f Gbps all-reduce, measured at the start", c.Network.BusbwGbps)
		if c.Network.OfferedGbps > 0 {
			busbw += fmt.Sprintf(" (offered: %.1f)", c.Network.OfferedGbps)
		}
	}
	replacing := ""
	if r := c.Replacing; r != nil {
		replacing = fmt.Sprintf("rank %s, until %s", strings.Trim(strings.ReplaceAll(fmt.Sprint(r.Ranks), " ", ", "), "[]"),
			base.When(r.Until))
	}
	doubt := ""
	if c.Doubt != nil {
		doubt = c.Doubt.Why
	}
	p.Facts("Cluster", c.ID.String(), "Name", c.Name, "State", string(c.State), "Reason", c.Reason, "", c.Detail, "Image",
		c.Spec.Image, "Pinned to", c.ImageDigest, "Entry point", shellquote.Join(c.Spec.Entrypoint...),
		"Command", shellquote.Join(c.Spec.Command...), "User", c.Spec.User, "Environment", names(c.Spec.Env),
		"Ports", portsOf(c.Spec),
		"Disk", fmt.Sprintf("%d GB per node", c.Spec.DiskGB), "Project", c.Spec.Project, "Budget", budgetOf(c),
		"If a node fails", c.Spec.OnNodeFailure,
		"Price", base.Micro(c.PricePerHour)+" per hour", "Cost so far", base.Cost(c.CostSoFar)+" "+c.Currency, "Billable",
		c.BillableSeconds.String()+" s",
		"Created", base.When(c.CreatedAt), "Running", base.WhenPtr(c.RunningAt), "Ended", base.WhenPtr(c.EndedAt),
		"Stops", stopsOf(c), "Paid until", base.WhenPtr(c.RunUntil),
		"Not billed", doubt, "Replacing", replacing, "Network", busbw, "RDMA", rdma, "Actions", strings.Join(c.Actions, ", "))
	p.Line("")
	rows := make([][]string, len(c.Nodes))
	for i, n := range c.Nodes {
		rows[i] = []string{fmt.Sprint(n.Rank), n.State, fmt.Sprint(len(n.GPUs)), modelOf(n), n.Address,
			cmp.Or(n.HostName, n.HostID.Short()), progressOf(n)}
	}
	p.Table([]string{">RANK", "STATE", ">GPUS", "MODEL", "ADDRESS", "HOST", ""}, rows)
	printMounts(p, mounts)
	for _, n := range c.Nodes {
		if u := n.Progress.Uploads; u != nil {
			p.Line("Rank %d has not uploaded %s yet: %s.", n.Rank, base.Counted(u.Files, "file"),
				base.Counted(int(u.Bytes), "byte"))
			if u.Problem != "" {
				p.Line("Uploads fail: %s.", u.Problem)
			}
		}
		if u := n.Uploading; u != nil {
			p.Line("The host of rank %d uploads what it wrote since %s, and ends by %s.", n.Rank, base.When(u.Since),
				base.When(u.EndsBy))
		}
	}
}

// stopsOf returns when a cluster stops and why; "" if nothing is known to stop it.
func stopsOf(c client.Cluster) string {
	if c.StopsAt == nil {
		return ""
	}
	return base.When(*c.StopsAt) + ": " + c.StopsBecause.Why()
}

// names returns the names of an environment. The server masks the values.
func names(env map[string]string) string { return strings.Join(slices.Sorted(maps.Keys(env)), " ") }

func portsOf(s client.Spec) string {
	ports := make([]string, len(s.Ports))
	for i, p := range s.Ports {
		ports[i] = fmt.Sprintf("%d/%s", p.Port, p.Protocol)
	}
	return strings.Join(ports, ", ")
}

func budgetOf(c client.Cluster) string {
	if c.Spec.Budget == nil {
		return ""
	}
	return base.Nano(*c.Spec.Budget) + " " + c.Currency
}

func modelOf(n client.Node) string {
	if len(n.GPUs) == 0 {
		return ""
	}
	return n.GPUs[0].Model
}

func clusterEvents(s *base.Session) *cobra.Command {
	return onCluster(s, "events", "List what happened to a cluster, when and why", func(cmd *cobra.Command,
		c *client.Client,
		cl id.Cluster) error {
		all, err := client.All(cmd.Context(), func(ctx context.Context, p client.PageOf) (client.Page[client.Event], error) {
			return c.Clusters.ListEvents(ctx, cl, p)
		}, client.PageOf{})
		if err != nil {
			return err
		}
		return s.Show(cmd, all, func(p *base.Printer) {
			rows := make([][]string, len(all))
			for i, e := range all {
				rank := ""
				if e.Rank != nil {
					rank = fmt.Sprint(*e.Rank)
				}
				rows[i] = []string{base.When(e.At), rank, e.Title, e.Detail}
			}
			p.List("events", []string{"WHEN", ">RANK", "WHAT", "WHY"}, rows)
		})
	})
}

func clusterRestart(s *base.Session) *cobra.Command {
	return onCluster(s, "restart", "Stop the command on every rank and start it again",
		func(cmd *cobra.Command, c *client.Client, cl id.Cluster) error {
			v, err := c.Clusters.Act(cmd.Context(), cl, client.ActOnClusterRequest{Action: "restart"})
			return s.Result(cmd, v, err, func(p *base.Printer) {
				p.Line("%s is starting again. Its time is not billed until every rank runs.", v.Name)
			})
		})
}

func clusterRelease(s *base.Session) *cobra.Command {
	var wait bool
	cmd := onCluster(s, "release", "Release a cluster: stop it and its billing",
		func(cmd *cobra.Command, c *client.Client, cl id.Cluster) error {
			v, err := c.Clusters.Release(cmd.Context(), cl)
			if err != nil {
				return err
			}
			if wait && v.State == client.Releasing {
				return waitFor(s, cmd, c, cl, client.Released)
			}
			return s.Show(cmd, v, func(p *base.Printer) {
				if v.State == client.Releasing {
					p.Line("%s is releasing. It costs at most %s %s: its hosts still have to sign when they stopped.", v.Name,
						base.Cost(v.CostSoFar), v.Currency)
					return
				}
				p.Line("%s is %s. Cost: %s %s", v.Name, v.State, base.Cost(v.CostSoFar), v.Currency)
			})
		})
	cmd.Aliases = []string{"rm", "stop", "delete"}
	cmd.Flags().BoolVar(&wait, "wait", false, "wait until its hosts have deleted its data")
	return cmd
}
