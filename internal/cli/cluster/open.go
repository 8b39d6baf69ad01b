package cluster

import (
	"strconv"

	"github.com/spf13/cobra"

	"github.com/musterhq/muster/internal/cli/base"
	"github.com/musterhq/muster/internal/fault"
)

func clusterOpen(s *base.Session) *cobra.Command {
	var rank int
	cmd := &cobra.Command{
		Use: "open CLUSTER PORT", Short: "Print a link to an HTTP port of a rank",
		Long: `Print a link that shows an HTTP port of a rank of a running cluster in a browser, WebSockets
included: Jupyter, TensorBoard. The link is good for a few minutes and lets in whoever opens it; the browser stays let
in for 12 hours.`,
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
			link, err := c.PortLink(cmd.Context(), cl, rank, port)
			if err != nil {
				return err
			}
			return s.Show(cmd, map[string]string{"url": link}, func(p *base.Printer) { p.Line("%s", link) })
		},
	}
	cmd.Flags().IntVar(&rank, "node", 0, "the rank")
	return cmd
}
