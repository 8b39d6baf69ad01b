package cli

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/musterhq/muster/client"
)

func offersCommand(s *shell) *cobra.Command {
	var sort, after string
	var limit int
	cmd := &cobra.Command{
		Use:   "offers [QUERY]",
		Short: "Search the offers that can be rented now",
		Long: `What can be rented now, cheapest first.

QUERY is terms "field op value" joined by spaces; ops are = != < <= > >= in notin. Text matches whole words of the
model.`,
		Example: `  muster offers
  muster offers 'gpu_model=H100 vram_gb>=80 gpus_free>=4'
  muster offers 'gpu_model in [4090,5090]' --sort=-reliability
  muster offers 'scratch_gb>=500'`,
		Args: atMost("QUERY"),
		RunE: func(cmd *cobra.Command, args []string) error {
			page, err := s.client(cmd).Offers(cmd.Context(), firstOf(args...), sort, client.PageOf{Limit: limit, After: after})
			return s.result(cmd, page, err, func(p *printer) { printOffers(p, page) })
		},
	}
	cmd.Flags().StringVar(&sort, "sort", "", "a field, - before it for descending (default: the price)")
	cmd.Flags().IntVar(&limit, "limit", 50, "offers at most")
	cmd.Flags().StringVar(&after, "after", "", "next of the page before")
	return cmd
}

func printOffers(p *printer, page client.OfferPage) {
	if len(page.Items) == 0 {
		p.line("Nothing matches.")
		for _, e := range page.Explain {
			p.line("  %s excluded %s, %d left", e.Constraint, counted(e.Excluded, "host"), e.Left)
		}
		return
	}
	rows := make([][]string, len(page.Items))
	for i, o := range page.Items {
		rows[i] = []string{
			o.GPUModel, fmt.Sprintf("%d/%d", o.GPUsFree, o.GPUsTotal), fmt.Sprint(o.VRAMGB), micro(o.PricePerGPUHour),
			floatOr(o.BusbwGbps),
			o.Region, o.HostName, note(o),
		}
	}
	p.table([]string{"MODEL", ">FREE", ">VRAM GB", ">PER GPU-HOUR", ">BUSBW GBPS", "REGION", "HOST", ""}, rows)
	p.line("%s free in %s on %s.", counted(page.GPUsFree, "GPU"), counted(page.Total, "offer"),
		counted(page.Hosts, "host"))
	if page.Next != nil {
		p.line("More: --after %s", *page.Next)
	}
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
	if o.DiskLimited {
		words = append(words, "disk enforced")
	}
	if o.ScratchGB > 0 {
		words = append(words, fmt.Sprintf("%d GB scratch", o.ScratchGB))
	}
	if slices.Contains(o.Runtimes, "runsc") {
		words = append(words, "gVisor")
	}
	return strings.Join(words, ", ")
}
