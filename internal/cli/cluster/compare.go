package cluster

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/cli/base"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
)

// compareCommand is muster offers compare.
func compareCommand(s *base.Session) *cobra.Command {
	return &cobra.Command{
		Use:   "compare HOST HOST [HOST] [HOST]",
		Short: "Show the offers of 2 to 4 hosts side by side",
		Long: `Shows all facts of the offers of 2 to 4 hosts side by side. HOST is the name of a host or the id of an offer. A host
with GPUs of several models has an offer for each.`,
		Example: "  muster offers compare rack-7-a attic",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) < 2 || len(args) > 4 {
				return fault.New(fault.Invalid, "%s takes 2 to 4 hosts; see %s --help", cmd.CommandPath(), cmd.CommandPath())
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			c := s.Client(cmd)
			var offers []client.Offer
			for _, arg := range args {
				page, err := c.Offers.Search(cmd.Context(), client.OffersQuery{PageOf: client.PageOf{Limit: 50},
					Q: offerQuery(arg), Sort: "gpu_model"})
				if err != nil {
					return err
				}
				if len(page.Items) == 0 {
					return fault.New(fault.NotFound, "%s is not on the market: all its GPUs are rented, or it is not listed", arg)
				}
				offers = append(offers, page.Items...)
			}
			return s.Show(cmd, offers, func(p *base.Printer) { printComparison(p, offers) })
		},
	}
}

// offerQuery returns the query for an offer by its id, or for the offers of a host by its name.
func offerQuery(name string) string {
	if _, err := id.Parse[id.Offer](name); err == nil {
		return "id=" + name
	}
	return "host_name=" + strconv.Quote(name)
}

func printComparison(p *base.Printer, offers []client.Offer) {
	facts := []struct {
		name  string
		value func(client.Offer) string
	}{
		{"Model", func(o client.Offer) string { return o.GPUModel }},
		{"Free GPUs", func(o client.Offer) string { return fmt.Sprintf("%d of %d", o.GPUsFree, o.GPUsTotal) }},
		{"VRAM", func(o client.Offer) string { return fmt.Sprintf("%d GB", o.VRAMGB) }},
		{"Per GPU-hour", func(o client.Offer) string { return base.Micro(o.PricePerGPUHour) }},
		{"NVLink", func(o client.Offer) string { return yesNo(o.NVLink) }},
		{"Drives a display", func(o client.Offer) string { return yesNo(o.Display) }},
		{"PCI Express", pcie},
		{"CPU cores", func(o client.Offer) string { return strconv.Itoa(o.CPUCores) }},
		{"RAM", func(o client.Offer) string { return fmt.Sprintf("%d GB", o.RAMGB) }},
		{"Free disk", func(o client.Offer) string { return fmt.Sprintf("%d GB", o.DiskGB) }},
		{"CUDA, driver", func(o client.Offer) string { return strings.Trim(o.CUDAMax+", "+o.Driver, ", ") }},
		{"ROCm", func(o client.Offer) string { return o.ROCmMax }},
		{"RDMA of a whole host, Gbit/s", func(o client.Offer) string { return strconv.FormatFloat(o.RDMAGbps, 'g', -1, 64) }},
		{"All-reduce over RDMA, Gbit/s", func(o client.Offer) string { return base.FloatOr(o.BusbwRDMA) }},
		{"Ring over NVLink, Gbit/s", func(o client.Offer) string { return base.FloatOr(o.BusbwNVLink) }},
		{"All-reduce, Gbit/s", func(o client.Offer) string { return base.FloatOr(o.BusbwGbps) }},
		{"Down, Mbit/s", func(o client.Offer) string { return base.FloatOr(o.NetDownMbps) }},
		{"Up, Mbit/s", func(o client.Offer) string { return base.FloatOr(o.NetUpMbps) }},
		{"Region", func(o client.Offer) string { return o.Region }},
		{"GPUs, at least", func(o client.Offer) string { return strconv.Itoa(o.MinGPUs) }},
		{"Longest rental", longestRental},
		{"Reliability", func(o client.Offer) string { return percent(o.Reliability) }},
		{"Notes", note},
	}
	heads := []string{""}
	for _, o := range offers {
		heads = append(heads, strings.ToUpper(o.HostName))
	}
	rows := make([][]string, len(facts))
	for i, f := range facts {
		rows[i] = []string{f.name}
		for _, o := range offers {
			rows[i] = append(rows[i], f.value(o))
		}
	}
	p.Table(heads, slices.DeleteFunc(rows, func(r []string) bool { return strings.Join(r[1:], "") == "" }))
}

func pcie(o client.Offer) string {
	if o.PCIeMeasured {
		return fmt.Sprintf("generation %d under load", o.PCIeGen)
	}
	return fmt.Sprintf("generation %d", o.PCIeGen)
}

func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

func longestRental(o client.Offer) string {
	if o.MaxDuration == nil {
		return "no limit"
	}
	return base.Seconds(*o.MaxDuration)
}
