package cluster

import (
	"slices"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/cli/base"
	"github.com/musterhq/muster/internal/fault"
)

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
			v, err := c.Cluster(cmd.Context(), cl)
			if err != nil {
				return err
			}
			if !slices.ContainsFunc(v.Spec.Ports, func(p client.Port) bool { return p.Port == port }) {
				cmd.PrintErrf("Port %d is not in the spec of %s. The link works only if something listens there.\n", port, v.Name)
			}
			link, err := c.PortLink(cmd.Context(), cl, rank, port)
			if err != nil {
				return err
			}
			if browser {
				if err := base.OpenBrowser(cmd, link); err != nil {
					return err
				}
			}
			return s.Show(cmd, map[string]string{"url": link}, func(p *base.Printer) { p.Line("%s", link) })
		},
	}
	cmd.Flags().IntVar(&rank, "node", 0, "the rank")
	cmd.Flags().BoolVar(&browser, "browser", false, "open the link in a browser on this machine, too")
	return cmd
}
