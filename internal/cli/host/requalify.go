package host

import (
	"strconv"

	"github.com/spf13/cobra"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/cli/base"
	"github.com/musterhq/muster/internal/fault"
)

func hostRequalify(s *base.Session) *cobra.Command {
	return &cobra.Command{
		Use:   "requalify HOST GPU",
		Short: "Reset a GPU that is not healthy, check it and put it back into service",
		Long: `Reset a GPU that is not healthy, check it and put it back into service. GPU is its UUID or its index.

The host's agent does this if the GPU has no lease; muster host show prints the result. First stop everything else
that has the GPU open on the host, such as a desktop, DCGM or an exporter. A GPU that has fallen off the bus needs a
reboot of the host.`,
		Example: "  muster host requalify rack-7-a 3",
		Args:    base.Exactly("HOST", "GPU"),
		RunE: func(cmd *cobra.Command, args []string) error {
			c := s.Client(cmd)
			h, err := base.FindHost(cmd.Context(), c, args[0])
			if err != nil {
				return err
			}
			v, err := c.Hosts.Get(cmd.Context(), h)
			if err != nil {
				return err
			}
			gpu, err := findGPU(v, args[1])
			if err != nil {
				return err
			}
			v, err = c.Hosts.Act(cmd.Context(), h, client.ActOnHostRequest{Action: "requalify", GPU: gpu.UUID})
			return s.Result(cmd, v, err, func(p *base.Printer) {
				p.Line("%s was asked to reset GPU %d and to check it. Look at the result: muster host show %s", v.Name,
					gpu.Index, v.Name)
			})
		},
	}
}

// findGPU returns the host's GPU of a UUID or an index.
func findGPU(h client.Host, name string) (client.HostGPU, error) {
	for _, g := range h.GPUs {
		if g.UUID == name || g.Present && strconv.Itoa(g.Index) == name {
			return g, nil
		}
	}
	return client.HostGPU{}, fault.New(fault.NotFound, "GPU %s of %s not found", name, h.Name)
}
