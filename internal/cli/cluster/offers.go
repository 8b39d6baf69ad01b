package cluster

import (
	"fmt"
	"slices"
	"strings"

	"github.com/kballard/go-shellquote"
	"github.com/spf13/cobra"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/cli/base"
)

// OffersCommand is muster offers.
func OffersCommand(s *base.Session) *cobra.Command {
	var sort, after string
	var limit int
	cmd := &cobra.Command{
		Use:               "offers [QUERY]",
		Aliases:           []string{"offer", "market"},
		ValidArgsFunction: base.First(base.QueryTerms),
		Short:             "Search the offers that can be rented now",
		Long: `What can be rented now, cheapest first.

QUERY is terms "field op value" joined by spaces; ops are = != < <= > >= in notin. A word alone, such as h100, is
searched in the model, the region, the fabric and the architecture.`,
		Example: `  muster offers
  muster offers 'h100 eu-west'
  muster offers 'gpu_model=H100 vram_gb>=80 gpus_free>=4'
  muster offers 'gpu_model in [4090,5090]' --sort=-reliability
  muster offers 'scratch_gb>=500'`,
		Args: base.AtMost("QUERY"),
		RunE: func(cmd *cobra.Command, args []string) error {
			page, err := s.Client(cmd).Offers.Search(cmd.Context(), client.OffersQuery{PageOf: client.PageOf{
				Limit: limit,
				After: after,
			}, Q: base.FirstOf(args...), Sort: sort})
			return s.Result(cmd, page, err, func(p *base.Printer) { printOffers(p, page) })
		},
	}
	cmd.AddCommand(compareCommand(s))
	cmd.Flags().StringVar(&sort, "sort", "", "a field, - before it for descending (default: the price)")
	cmd.Flags().IntVar(&limit, "limit", 50, "offers at most")
	cmd.Flags().StringVar(&after, "after", "", "continue after this item, which the page before named")
	return cmd
}

func printOffers(p *base.Printer, page client.OfferPage) {
	if len(page.Items) == 0 {
		p.Line("Nothing matches.")
		for _, e := range page.Explain {
			p.Line("  %s excluded %s, %d left", e.Constraint, base.Counted(e.Excluded, "host"), e.Left)
		}
		if page.DidYouMean != nil {
			p.Line("Did you mean: muster offers %s", shellquote.Join(*page.DidYouMean))
		}
		return
	}
	rows := make([][]string, len(page.Items))
	for i, o := range page.Items {
		rows[i] = []string{
			o.GPUModel, fmt.Sprintf("%d/%d", o.GPUsFree, o.GPUsTotal), fmt.Sprint(o.VRAMGB), base.Micro(o.PricePerGPUHour),
			base.FloatOr(o.BusbwGbps), base.FloatOr(o.BusbwRDMA), base.FloatOr(o.BusbwNVLink),
			o.Region, o.HostName, note(o),
			fmt.Sprint(o.CPUCores), fmt.Sprint(o.RAMGB), fmt.Sprint(o.DiskGB), o.CUDAMax, o.Driver, fmt.Sprint(o.PCIeGen),
			base.FloatOr(o.NetDownMbps), base.FloatOr(o.NetUpMbps), percent(o.Reliability), o.ID.String(),
		}
	}
	p.Table([]string{"MODEL", ">FREE", ">VRAM GB", ">PER GPU-HOUR", ">BUSBW GBPS", "+>RDMA GBPS", "+>NVLINK GBPS",
		"REGION", "HOST", "", "+>CPU CORES", "+>RAM GB", "+>DISK GB", "+CUDA", "+DRIVER", "+>PCIE", "+>DOWN MBPS",
		"+>UP MBPS", "+>RELIABILITY", "+OFFER"}, rows)
	p.Line("%s free in %s on %s.", base.Counted(page.GPUsFree, "GPU"), base.Counted(page.Total, "offer"),
		base.Counted(page.Hosts, "host"))
	base.PrintNext(p, page.Next)
}

// percent formats a part of 1, or a dash for nil.
func percent(f *float64) string {
	if f == nil {
		return "–"
	}
	return fmt.Sprintf("%.1f %%", 100**f)
}

// note is what else one chooses by.
func note(o client.Offer) string {
	var words []string
	switch {
	case o.Simulated:
		words = append(words, "simulated")
	case o.Verified:
		words = append(words, "verified")
	}
	if limit, made := o.PowerLimitW, o.PowerDefaultW; limit != nil && made != nil && *limit < *made {
		words = append(words, fmt.Sprintf("limited to %d of %d W", *limit, *made))
	}
	if o.Degraded != nil {
		words = append(words, "degraded: "+*o.Degraded)
	}
	if o.Display {
		words = append(words, "drives a display")
	}
	if o.DiskLimited {
		words = append(words, "disk enforced")
	}
	if o.ScratchGB > 0 {
		words = append(words, fmt.Sprintf("%d GB scratch", o.ScratchGB))
	}
	if slices.Contains(o.Runtimes, "runsc") {
		words = append(words, "gVisor")
	}
	for _, name := range o.Shared {
		words = append(words, "shared "+name)
	}
	return strings.Join(words, ", ")
}
