package offers

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-chi/chi/v5"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/fleet/market"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/web/page"
	"github.com/musterhq/muster/web/view"
)

// offer shows all facts of an offer. With row=1 it returns only the table row in which the market unfolds them.
func (s *Pages) offer(v *page.Visit) error {
	found, err := s.offersByID(v, []string{chi.URLParam(v.R, "id")})
	if err != nil {
		return err
	}
	if len(found) == 0 {
		return fault.New(fault.NotFound, "This offer is not on the market: all its GPUs are rented, or it was taken off.")
	}
	o := found[0]
	history, err := s.Market.OfferHistory(v.R.Context(), o.ID, o.HostID)
	if err != nil {
		return err
	}
	f := OfferFacts{
		Row:      offerRow(o, nil),
		Groups:   ownFacts(factGroups(o, s.Currency), o.GPUVendor),
		History:  viewHistory(history, o, s.Currency),
		Currency: s.Currency,
	}
	if v.R.FormValue("row") != "" {
		return s.Render(v, FactsRow(f))
	}
	return s.Render(v, OfferPage(v.Page(f.Row.Host, "market"), f))
}

// offersByID returns those of the offers that are on the market, in the given order.
func (s *Pages) offersByID(v *page.Visit, ids []string) ([]client.Offer, error) {
	for _, text := range ids {
		if _, err := id.Parse[id.Offer](text); err != nil {
			return nil, fault.New(fault.NotFound, "offer not found")
		}
	}
	if len(ids) == 0 {
		return nil, nil
	}
	p, err := s.Market.SearchOffers(v.R.Context(), market.OfferSearch{
		Query: "id in [" + strings.Join(ids, ",") + "]",
		Limit: market.MaxPage,
	})
	if err != nil {
		return nil, err
	}
	found := slices.Clone(p.Items) // the page is shared
	slices.SortStableFunc(found, func(a, b client.Offer) int {
		return slices.Index(ids, a.ID.String()) - slices.Index(ids, b.ID.String())
	})
	return found, nil
}

// ownFacts drops what another maker's GPUs have: the driver and CUDA on a host of AMD's, ROCm on one of NVIDIA's.
func ownFacts(groups []FactGroup, vendor string) []FactGroup {
	others := []string{"ROCm, newest", "Checked before billing"}
	if vendor == agentapi.AMD {
		others = []string{"NVIDIA driver", "CUDA, newest", "Compute capability", "NVLink"}
	}
	for i := range groups {
		groups[i].Facts = slices.DeleteFunc(groups[i].Facts, func(f Fact) bool { return slices.Contains(others, f.Name) })
	}
	return groups
}

// factGroups returns everything that is known about an offer. All offers have the same facts in the same order.
func factGroups(o client.Offer, currency string) []FactGroup {
	return []FactGroup{
		{"GPUs", []Fact{
			{"Model", view.ModelName(o.GPUModel)},
			{"Maker", vendor(o.GPUVendor)},
			{"Kind", either(o.Kind == agentapi.KindSlice, "slice of a GPU (MIG)", "whole GPU")},
			{"Architecture", o.GPUArch},
			{"Free", fmt.Sprintf("%d of %d", o.GPUsFree, o.GPUsTotal)},
			{"VRAM of each", view.Itoa(int(o.VRAMGB)) + " GB"},
			{"Compute capability", o.ComputeCap},
			{"NVLink", nvlink(o)},
			{"PCI Express", fmt.Sprintf("generation %d, ", o.PCIeGen) + either(o.PCIeMeasured, "under load", "not measured")},
			{"Power limit", watts(o)},
			{"Degraded", degraded(o)},
			{"Checked before billing", "that their devices open, not that they compute"},
			{"Drives a display", either(o.Display, "yes: long kernels are ended", "no")},
		}},
		{"Host", []Fact{
			{"Processor cores", view.Itoa(o.CPUCores)},
			{"RAM", fmt.Sprintf("%d GiB", o.RAMGB)},
			{"Free disk", fmt.Sprintf("%d GB", o.DiskGB)},
			{"Disk limit", either(o.DiskLimited, "enforced", "not enforced")},
			{"Free scratch", either(o.ScratchGB > 0, fmt.Sprintf("%d GB", o.ScratchGB), "none")},
			{"Isolation", either(slices.Contains(o.Runtimes, agentapi.RuntimeRunsc), "containers, gVisor", "containers")},
			{"Shared file systems", either(len(o.Shared) > 0, strings.Join(o.Shared, ", "), "none")},
		}},
		{"Software", []Fact{{"NVIDIA driver", otherwiseNone(o.Driver)}, {"CUDA, newest", otherwiseNone(o.CUDAMax)},
			{"ROCm, newest", otherwiseNone(o.ROCmMax)}}},
		{"Network", []Fact{
			{"Region", o.Region},
			{"Download", measured(o.NetDownMbps, "Mbit/s")},
			{"Upload", measured(o.NetUpMbps, "Mbit/s")},
			{"Fabric", textOr(o.Fabric, "none")},
			{"RDMA for whole hosts", rdma(o)},
			{"All-reduce over RDMA", measured(o.BusbwRDMA, "Gbit/s")},
			{"Ring over NVLink", measured(o.BusbwNVLink, "Gbit/s")},
			{"All-reduce over TCP", measured(o.BusbwGbps, "Gbit/s")},
			{"Clusters of several nodes", either(o.MultiNode, "yes", "no")},
		}},
		{"Terms", []Fact{
			{"Per GPU-hour", view.Price(o.PricePerGPUHour) + " " + currency},
			{"Per GPU-second", view.PerSecond(o.PricePerGPUHour) + " " + currency},
			{"GPUs, at least", view.Itoa(o.MinGPUs)},
			{"Longest rental", longest(o.MaxDuration)},
		}},
		{"Trust", []Fact{
			{"GPUs", offerRow(o, nil).Verified.Word},
			{"Reliability", reliability(o)},
		}},
	}
}

// rdma says what RDMA network a whole host comes with.
func rdma(o client.Offer) string {
	if o.RDMAIsolation == nil {
		return "none"
	}
	if *o.RDMAIsolation == agentapi.IsolationPartition {
		return fmt.Sprintf("%g Gbit/s; each cluster has its own partition", o.RDMAGbps)
	}
	return fmt.Sprintf("%g Gbit/s; one renter of the fabric at a time", o.RDMAGbps)
}

func vendor(name string) string {
	if name == agentapi.AMD {
		return "AMD"
	}
	return "NVIDIA"
}

func otherwiseNone(s string) string { return either(s != "", s, "none") }

func degraded(o client.Offer) string {
	if o.Degraded == nil {
		return "no"
	}
	return *o.Degraded
}

func nvlink(o client.Offer) string {
	return either(o.NVLink, fmt.Sprintf("%.0f Gbit/s", o.NVLinkGbps), "none")
}

func watts(o client.Offer) string {
	switch {
	case o.PowerLimitW == nil:
		return "not known"
	case o.PowerDefaultW == nil, *o.PowerDefaultW == *o.PowerLimitW:
		return fmt.Sprintf("%d W", *o.PowerLimitW)
	}
	return fmt.Sprintf("%d W (made for %d W)", *o.PowerLimitW, *o.PowerDefaultW)
}

func reliability(o client.Offer) string {
	if o.Reliability == nil {
		return "new, no record"
	}
	return strconv.FormatFloat(*o.Reliability*100, 'f', 2, 64) + " %"
}

func either(first bool, a, b string) string {
	if first {
		return a
	}
	return b
}

func textOr(s *string, otherwise string) string {
	if s == nil {
		return otherwise
	}
	return *s
}

func measured(n *float64, unit string) string {
	if n == nil {
		return "not measured"
	}
	return fmt.Sprintf("%.1f %s", *n, unit)
}

// longest returns the longest rental in days and hours.
func longest(seconds *int64) string {
	if seconds == nil {
		return "no limit"
	}
	return view.Dur(time.Duration(*seconds) * time.Second)
}

// plotStep is the distance of the points of a price plot. Time without a price is hatched if it is longer.
const plotStep = 12 * time.Hour

// viewHistory draws the history of an offer: its price as steps, and each day on which it was rented.
func viewHistory(h market.History, o client.Offer, currency string) HistoryView {
	out := HistoryView{From: h.From, To: h.To}
	top := o.PricePerGPUHour
	for _, p := range h.Prices {
		if p.Price != nil {
			top = max(top, *p.Price)
		}
	}
	var points []view.Point
	for i, p := range h.Prices {
		until := h.To
		if i+1 < len(h.Prices) {
			until = h.Prices[i+1].At
		}
		if p.Price == nil || !until.After(h.From) {
			continue
		}
		from := p.At
		if from.Before(h.From) {
			from = h.From
		}
		for at := from; at.Before(until); at = at.Add(plotStep) {
			points = append(points, view.Point{At: at, V: float64(*p.Price)})
		}
		points = append(points, view.Point{At: until, V: float64(*p.Price)})
		out.Changes = append(out.Changes, PriceStep{At: from, Price: *p.Price})
	}
	out.Price = view.NewPlot(points, h.From, h.To, float64(top), plotStep)
	out.Scale = "0 to " + view.Price(top) + " " + currency
	for _, d := range h.Reports {
		out.Days = append(out.Days, viewDay(d))
		if d.Rented > 0 {
			out.Rented++
		}
	}
	return out
}

func viewDay(d market.Day) DayBar {
	bar := DayBar{Class: "none", Tip: d.Start.Format("2 Jan") + ": not rented"}
	if d.Rented == 0 {
		return bar
	}
	reported := 100 * float64(d.Rented-d.Missing) / float64(d.Rented)
	bar.Class = "ready"
	if d.Missing > 0 {
		bar.Class = "bad"
	}
	bar.Tip = fmt.Sprintf("%s: reported %.2f %% of its rented time", d.Start.Format("2 Jan"), reported)
	return bar
}
