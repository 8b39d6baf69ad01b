package host

import (
	"fmt"
	"math"
	"strings"

	"github.com/spf13/cobra"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/cli/base"
	"github.com/musterhq/muster/internal/id"
)

func hostTraffic(s *base.Session) *cobra.Command {
	return onHost(s, "traffic", "What leases did on a host's own line: for reports of abuse",
		func(cmd *cobra.Command, c *client.Client, h id.Host) error {
			page, err := c.Hosts.ListTraffic(cmd.Context(), h)
			if err != nil {
				return err
			}
			host, err := c.Hosts.Get(cmd.Context(), h)
			if err != nil {
				return err
			}
			return s.Show(cmd, page, func(p *base.Printer) {
				if m := host.DataMonth; m != nil {
					p.Facts("Images received in "+m.Month, pulled(m))
				}
				if len(page.Items) == 0 {
					p.Line("No lease has sent anything over this host's line.")
					return
				}
				rows := make([][]string, len(page.Items))
				for i, t := range page.Items {
					rows[i] = []string{t.LeaseID.Short(), base.When(t.FirstAt), base.When(t.LastAt), fmt.Sprint(t.Connections),
						fmt.Sprint(t.Refused), megabytes(t.UpBytes), megabytes(t.DownBytes), megabytes(t.OverlayUp),
						megabytes(t.OverlayDown)}
				}
				p.List("traffic",
					[]string{"LEASE", "FROM", "LAST REPORT", ">CONNECTIONS", ">REFUSED", ">UP MB", ">DOWN MB", ">RANKS UP MB",
						">RANKS DOWN MB"}, rows)
			})
		})
}

// pulled is what the host received of images in a month; "" where its agent does not count it.
func pulled(m *client.DataMonth) string {
	if m.PulledBytes == nil {
		return ""
	}
	return gigabytes(*m.PulledBytes)
}

func gigabytes(n int64) string { return fmt.Sprintf("%.1f GB", float64(n)/1e9) }

func megabytes(n int64) string { return fmt.Sprintf("%.1f", float64(n)/1e6) }

// dataUsed is what moved over a host's line in a month, of its cap.
func dataUsed(bytes int64, capGB *int64) string {
	gb := float64(bytes) / 1e9
	if capGB == nil {
		return fmt.Sprintf("%.1f GB, no cap", gb)
	}
	const width = 20
	percent := 100 * gb / float64(*capGB)
	full := min(int(percent*width/100), width)
	return fmt.Sprintf("%.1f of %d GB  [%s%s] %.0f %%", gb, *capGB, strings.Repeat("#", full),
		strings.Repeat(".", width-full), math.Floor(percent))
}
