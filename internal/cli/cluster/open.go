package cluster

import (
	"cmp"
	"context"
	"net"
	"slices"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/cli/base"
	"github.com/musterhq/muster/internal/fault"
)

// checkListens returns a fault if nothing listens on a port of a rank, so that no link is printed that leads nowhere.
func checkListens(ctx context.Context, c *client.Client, v client.Cluster, rank, port int) error {
	node, err := c.Clusters.SSH(ctx, v.ID, rank)
	if err != nil {
		return nil // the request for the link fails, too, and names the cause
	}
	defer node.Close()
	conn, err := node.Dial("tcp", net.JoinHostPort("localhost", strconv.Itoa(port)))
	if err != nil {
		return fault.New(fault.Conflict, "nothing listens on port %d of rank %d of %s, and the port is not in its spec "+
			"(ports: %s)", port, rank, v.Name, cmp.Or(portsOf(v.Spec), "none"))
	}
	return conn.Close()
}

func clusterOpen(s *base.Session) *cobra.Command {
	var rank int
	var browser bool
	cmd := &cobra.Command{
		Use: "open CLUSTER PORT", Short: "Print a link to an HTTP port of a rank",
		Long: `Print a link that shows an HTTP port of a rank of a running cluster in a browser, WebSockets
included: Jupyter, TensorBoard. The link works for a few minutes for anyone who has it; the browser that opens it has
access for 12 hours.`,
		Example: "  muster cluster open train 8888",
		Args:    base.Exactly("CLUSTER", "PORT"),
		RunE: func(cmd *cobra.Command, args []string) error {
			port, err := strconv.Atoi(args[1])
			if err != nil || port < 1 || port > 65535 {
				return fault.New(fault.Invalid, "%q is not a port", args[1])
			}
			c := s.Client(cmd)
			cl, err := base.FindCluster(cmd.Context(), c, args[0])
			if err != nil {
				return err
			}
			v, err := c.Clusters.Get(cmd.Context(), cl)
			if err != nil {
				return err
			}
			if !slices.ContainsFunc(v.Spec.Ports, func(p client.Port) bool { return p.Port == port }) {
				if err := checkListens(cmd.Context(), c, v, rank, port); err != nil {
					return err
				}
			}
			link, err := c.Clusters.GetPortLink(cmd.Context(), cl, port, client.RankQuery{Node: rank})
			if err != nil {
				return err
			}
			if browser {
				if err := base.OpenBrowser(cmd, link.URL); err != nil {
					return err
				}
			}
			return s.Show(cmd, link, func(p *base.Printer) { p.Line("%s", link.URL) })
		},
	}
	cmd.Flags().IntVar(&rank, "node", 0, "the rank")
	cmd.Flags().BoolVar(&browser, "browser", false, "also open the link in a browser on this machine")
	return cmd
}
