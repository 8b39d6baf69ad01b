// Package host holds the commands of host operators.
package host

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/cli/base"
	"github.com/musterhq/muster/internal/cli/billing"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/money"
)

// Command is muster host.
func Command(s *base.Session) *cobra.Command {
	cmd := base.Noun("host", "Enrol hosts, set prices, and see what they earn",
		hostEnroll(s), hostList(s), hostShow(s), hostSet(s), hostPriceGuide(s),
		hostAct(s, "drain", "Take no new leases; running leases continue"),
		hostReclaim(s),
		hostAct(s, "resume", "Take leases again, or cancel a reclaim"),
		hostRequalify(s),
		hostAct(s, "retire", "Remove a host permanently; drain it first"),
		hostEarnings(s), hostMetrics(s), hostTraffic(s), hostContested(s), billing.HostStatement(s),
		hostPayouts(s), billing.HostBond(s))
	cmd.Aliases = []string{"hosts"}
	return cmd
}

func hostEnroll(s *base.Session) *cobra.Command {
	var name, region, fabric string
	cmd := &cobra.Command{
		Use: "enroll", Short: "Create a token that enrols one machine",
		Example: "  muster host enroll --region eu-west --fabric rack-7",
		Args:    base.Exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			e, err := s.Client(cmd).Hosts.CreateEnrollment(cmd.Context(), client.CreateEnrollmentRequest{Name: name,
				Region: region, Fabric: fabric})
			return s.Result(cmd, e, err, func(p *base.Printer) {
				p.Line("Run this on the machine within %s. It installs the agent and enrols the host:",
					base.Counted(int(time.Until(e.ExpiresAt).Round(time.Minute).Minutes()), "minute"))
				p.Line("")
				p.Line("  %s", e.Command)
				p.Line("")
				p.Line("Then set a price: muster host set HOST --price 2.40")
			})
		},
	}
	cmd.Flags().StringVar(&name, "name", "", "name of the host (default: the machine's own)")
	cmd.Flags().StringVar(&region, "region", "", "region of the host, such as eu-west")
	cmd.Flags().StringVar(&fabric, "fabric", "", "the fast network it shares with your other hosts")
	return cmd
}

func hostList(s *base.Session) *cobra.Command {
	var after string
	var limit int
	cmd := &cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Short: "List your hosts", Args: base.Exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			page, err := s.Client(cmd).Hosts.List(cmd.Context(), client.HostsQuery{PageOf: client.PageOf{Limit: limit,
				After: after}})
			return s.Result(cmd, page, err, func(p *base.Printer) { printHosts(p, page) })
		},
	}
	cmd.Flags().IntVar(&limit, "limit", 50, "hosts at most")
	cmd.Flags().StringVar(&after, "after", "", "continue after this item, which the page before named")
	return cmd
}

func printHosts(p *base.Printer, page client.Page[client.Host]) {
	rows := make([][]string, len(page.Items))
	for i, h := range page.Items {
		selling := "selling"
		if !h.Selling {
			selling = h.NotSelling
		}
		rows[i] = []string{h.ID.String(), h.Name, h.Region, h.State, taken(h), gpuModels(h), prices(h), selling}
	}
	p.TableOr("No hosts. Enrol one: muster host enroll --region eu-west",
		[]string{"ID", "NAME", "REGION", "STATE", ">GPUS TAKEN", "MODEL", ">PER GPU-HOUR", ""}, rows)
	base.PrintNext(p, page.Next)
}

func taken(h client.Host) string {
	n := 0
	for _, g := range h.GPUs {
		if g.TakenFor != "" {
			n++
		}
	}
	return fmt.Sprintf("%d/%d", n, len(h.GPUs))
}

func gpuModels(h client.Host) string {
	var out []string
	for _, o := range h.Offers {
		out = append(out, o.GPUModel)
	}
	return strings.Join(out, ", ")
}

func prices(h client.Host) string {
	var out []string
	for _, o := range h.Offers {
		if o.Price == nil {
			out = append(out, "none")
		} else {
			out = append(out, base.Micro(*o.Price))
		}
	}
	return strings.Join(out, ", ")
}

// onHost is a command about one host.
func onHost(s *base.Session, use, short string, f func(*cobra.Command, *client.Client, id.Host) error) *cobra.Command {
	return &cobra.Command{
		Use: use + " HOST", Short: short, Args: base.Exactly("HOST"), Example: "  muster host " + use + " rack-7-a",
		RunE: func(cmd *cobra.Command, args []string) error {
			c := s.Client(cmd)
			h, err := base.FindHost(cmd.Context(), c, args[0])
			if err != nil {
				return err
			}
			return f(cmd, c, h)
		},
	}
}

func hostShow(s *base.Session) *cobra.Command {
	return onHost(s, "show", "Show a host", func(cmd *cobra.Command, c *client.Client, h id.Host) error {
		v, err := c.Hosts.Get(cmd.Context(), h)
		return s.Result(cmd, v, err, func(p *base.Printer) { printHost(p, v) })
	})
}

// scratchText is what a host has for scratch.
func scratchText(gb int64) string {
	if gb == 0 {
		return "none: muster-agent run --scratch-dir offers some"
	}
	return fmt.Sprintf("%d GB for all nodes together", gb)
}

// diskBound says whether nodes are held to their disk_gb.
func diskBound(limited bool) string {
	if limited {
		return "enforced"
	}
	return "not enforced: muster-agent doctor says why"
}

func printHost(p *base.Printer, h client.Host) {
	fabric := ""
	if h.Fabric != nil {
		fabric = *h.Fabric
	}
	ephemeral := ""
	if h.Ephemeral {
		ephemeral = "yes: retired after a day without a report or a lease"
	}
	p.Facts("Host", h.ID.String(), "Name", h.Name, "Region", h.Region, "Fabric", fabric, "State", h.State,
		"Ephemeral", ephemeral, "Reclaimed at", base.WhenPtr(h.ReclaimAt), "Not selling", h.NotSelling,
		"Agent", h.AgentVersion, "Last seen", base.WhenPtr(h.LastSeenAt), "Driver", h.Driver, "CPU, RAM, disk",
		fmt.Sprintf("%d cores, %d GB, %d GB", h.CPUCores, h.RAMMB>>10, h.DiskGB),
		"Disk per node", diskBound(h.DiskLimited), "Scratch", scratchText(h.ScratchGB), "Runtimes",
		strings.Join(h.Runtimes, ", "),
		"Actions", strings.Join(h.Actions, ", "))
	if a := h.Agent; a != nil {
		p.Line("")
		p.Facts("Agent channel", a.Channel, "Should run", a.Wanted, "Update", strings.TrimSpace(a.State+" "+a.Update), "",
			a.Detail)
	}
	if m := h.DataMonth; m != nil {
		p.Line("")
		p.Facts("Sent in "+m.Month, dataUsed(m.Sent(), m.UpCapGB), "  between ranks", gigabytes(m.OverlayUp),
			"Received", dataUsed(m.Received(), m.DownCapGB), "  between ranks", gigabytes(m.OverlayDown), "  images",
			pulled(m), "No new leases before", base.WhenPtr(m.CappedUntil))
	}
	p.Line("")
	rows := make([][]string, len(h.GPUs))
	for i, g := range h.GPUs {
		rows[i] = []string{
			fmt.Sprint(g.Index), g.Model, fmt.Sprint(g.VRAMMB >> 10), power(g), health(g), usedFor(g), g.UUID, part(g),
		}
	}
	p.Table([]string{">GPU", "MODEL", ">VRAM GB", ">POWER W", "HEALTH", "TAKEN FOR", "UUID", "+PART OF"}, rows)
	for _, g := range h.GPUs {
		if g.Degraded != "" {
			p.Line("GPU %d is degraded: %s", g.Index, g.Degraded)
		}
		if g.Display {
			p.Line("GPU %d drives a display: the driver ends kernels that run for some seconds", g.Index)
		}
		if g.Requalify != "" {
			p.Line("GPU %d: %s", g.Index, g.Requalify)
		}
	}
	for _, m := range h.NVLinkMeasured {
		p.Line("%s: %s Gbit/s over NVLink from each GPU to the next, GPU %d is the slowest, measured at %s", m.GPUModel,
			base.FloatOr(&m.BusbwNVLink), m.SlowestGPU, base.When(m.At))
	}
	for _, o := range h.Offers {
		price := "not listed"
		if o.Price != nil {
			price = base.Micro(*o.Price) + " per GPU-hour"
		}
		p.Line("%s: %s, at least %s, %.1f %% of the price is yours", o.GPUModel, price, base.Counted(o.MinGPUs, "GPU"),
			float64(o.HostSharePPM)/10_000)
	}
	for _, x := range h.Problems {
		p.Line("%s: %s %s", strings.ToUpper(x.Severity), x.Cause, x.Fix)
	}
}

// part is the GPU that a slice is part of.
func part(g client.HostGPU) string {
	if g.Parent == "" {
		return "–"
	}
	return g.Parent
}

// health is a GPU's health in one word.
func health(g client.HostGPU) string {
	if g.Health == "healthy" && g.Degraded != "" {
		return "degraded"
	}
	return g.Health
}

// power is a GPU's power limit in watts, beside what it was made for where that is another.
func power(g client.HostGPU) string {
	switch {
	case g.PowerLimitW == nil:
		return ""
	case g.PowerDefaultW == nil || *g.PowerDefaultW == *g.PowerLimitW:
		return fmt.Sprint(*g.PowerLimitW)
	}
	return fmt.Sprintf("%d of %d", *g.PowerLimitW, *g.PowerDefaultW)
}

// usedFor is what a GPU is taken for, or in use for by its owner.
func usedFor(g client.HostGPU) string {
	if g.TakenFor == "" && g.InUse != "" {
		return "you: " + g.InUse
	}
	return base.FirstOf(g.TakenFor, "free")
}

func hostSet(s *base.Session) *cobra.Command {
	var name, price, model, maxDuration, channel string
	var minGPUs int
	var upCap, downCap int64
	var unlist bool
	cmd := onHost(s, "set", "Set name, price, terms and data cap", nil)
	cmd.Example = "  muster host set rack-7-a --price 2.40 --min-gpus 4\n  muster host set rack-7-a --unlist\n  muster " +
		"host set rack-7-a --up-cap-gb 2000"
	cmd.Flags().StringVar(&name, "name", "", "new name")
	cmd.Flags().StringVar(&price, "price", "", "per GPU-hour; running leases keep theirs")
	cmd.Flags().StringVar(&model, "model", "", "for this GPU model only")
	cmd.Flags().IntVar(&minGPUs, "min-gpus", 0, "GPUs rented together at least")
	cmd.Flags().StringVar(&maxDuration, "max-duration", "", "longest lease: 12h, or 0 for no limit")
	cmd.Flags().BoolVar(&unlist, "unlist", false, "take the price off: nothing new is rented")
	cmd.Flags().StringVar(&channel, "agent-channel", "", "channel of agent versions: stable, another one of the "+
		"platform, or off to update by hand")
	base.Gigabytes(cmd.Flags(), &upCap, "up-cap-gb", 0, "what leases may send over its line a month before it takes no "+
		"new ones; running leases continue; 0: no cap")
	base.Gigabytes(cmd.Flags(), &downCap, "down-cap-gb", 0, "the same for what they receive")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		change := client.ChangeHostRequest{GPUModel: model, Unlist: unlist}
		var bad fault.Fields
		if cmd.Flags().Changed("name") {
			change.Name = &name
		}
		if cmd.Flags().Changed("up-cap-gb") {
			change.UpCapGB = &upCap
		}
		if cmd.Flags().Changed("down-cap-gb") {
			change.DownCapGB = &downCap
		}
		if channel != "" {
			change.Channel = &channel
		}
		if cmd.Flags().Changed("min-gpus") {
			change.MinGPUs = &minGPUs
		}
		if price != "" {
			v, err := money.ParseMicro(price)
			base.Note(&bad, "--price", err)
			change.Price = new(v.String())
		}
		if maxDuration != "" {
			v, err := base.ParseSeconds(maxDuration)
			base.Note(&bad, "--max-duration", err)
			change.MaxDuration = &v
		}
		if err := bad.Err(); err != nil {
			return err
		}
		c := s.Client(cmd)
		h, err := base.FindHost(cmd.Context(), c, args[0])
		if err != nil {
			return err
		}
		v, err := c.Hosts.Change(cmd.Context(), h, change)
		return s.Result(cmd, v, err, func(p *base.Printer) { printHost(p, v) })
	}
	return cmd
}

func hostPriceGuide(s *base.Session) *cobra.Command {
	cmd := onHost(s, "price-guide", "Show how other operators price a host's GPUs", nil)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		c := s.Client(cmd)
		hid, err := base.FindHost(cmd.Context(), c, args[0])
		if err != nil {
			return err
		}
		h, err := c.Hosts.Get(cmd.Context(), hid)
		if err != nil {
			return err
		}
		guides := make([]client.PriceGuide, len(h.Offers))
		for i, o := range h.Offers {
			if guides[i], err = c.Offers.GetPriceGuide(cmd.Context(), client.PriceGuideQuery{GPUModel: o.GPUModel}); err != nil {
				return err
			}
		}
		return s.Show(cmd, guides, func(p *base.Printer) {
			for i, g := range guides {
				p.Line("%s", guideText(g, h.Offers[i].Price))
			}
		})
	}
	return cmd
}

// guideText says how a price compares with those of other operators; nil = no price is set.
func guideText(g client.PriceGuide, price *money.Micro) string {
	if g.Median == nil {
		return g.GPUModel + ": no other operator offers it now."
	}
	text := fmt.Sprintf("%s: half of %s of other operators cost %s to %s per GPU-hour, the median is %s.", g.GPUModel,
		base.Counted(g.GPUs, "GPU"), base.Micro(*g.P25), base.Micro(*g.P75), base.Micro(*g.Median))
	if price != nil {
		text += fmt.Sprintf(" Your price is %s; %d %% of them are cheaper.", base.Micro(*price), g.Cheaper(*price))
	}
	return text
}

func hostAct(s *base.Session, action, short string) *cobra.Command {
	return onHost(s, action, short, func(cmd *cobra.Command, c *client.Client, h id.Host) error {
		v, err := c.Hosts.Act(cmd.Context(), h, client.ActOnHostRequest{Action: action})
		return s.Result(cmd, v, err, func(p *base.Printer) { p.Line("%s is %s.", v.Name, v.State) })
	})
}

func hostPayouts(s *base.Session) *cobra.Command {
	return &cobra.Command{
		Use: "payouts", Short: "Show what your hosts earned: in the holdback, and payable", Args: base.Exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			b, err := s.Client(cmd).Earnings.GetPayoutBalance(cmd.Context())
			return s.Result(cmd, b, err, func(p *base.Printer) {
				p.Facts("Pending", base.Nano(b.Pending)+" "+b.Currency+", for "+base.Seconds(b.Holdback)+" after it was booked",
					"Not booked",
					base.Nano(b.NotYet)+" "+b.Currency+", measured on leases that run; booked every quarter of an hour", "Payable",
					base.Nano(b.Payable)+" "+b.Currency)
				if len(b.Frozen) > 0 {
					p.Line("Nothing becomes payable until an admin has checked conflicting usage reports of %s.",
						base.Counted(len(b.Frozen), "lease"))
				}
			})
		},
	}
}

func hostEarnings(s *base.Session) *cobra.Command {
	return onHost(s, "earnings", "What a host earned, per lease and per day", func(cmd *cobra.Command, c *client.Client,
		h id.Host) error {
		e, err := c.Hosts.GetEarnings(cmd.Context(), h)
		return s.Result(cmd, e, err, func(p *base.Printer) {
			var rows [][]string
			for _, l := range e.Leases {
				rows = append(rows, []string{l.Lease.Short(), l.GPUModel, fmt.Sprint(l.GPUs), base.When(l.StartedAt),
					base.OrDash(base.WhenPtr(l.EndedAt)), l.Seconds.String(), l.Earned.String()})
			}
			p.List("earnings", []string{"LEASE", "MODEL", ">GPUS", "FROM", "TO", ">SECONDS", ">EARNED"}, rows)
			for _, d := range e.Days {
				p.Line("%s  %s", d.Day, d.Earned)
			}
			p.Line("Earned %s %s, and %s not yet proven.", e.Total, e.Currency, e.Pending)
			if e.Returned > 0 {
				p.Line("Of that, %s %s went back to renters because the host failed.", e.Returned, e.Currency)
			}
		})
	})
}
