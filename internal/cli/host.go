package cli

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/money"
)

func hostCommand(s *shell) *cobra.Command {
	return noun("host", "Enrol and run machines that earn",
		hostEnroll(s), hostList(s), hostShow(s), hostSet(s),
		hostAct(s, "drain", "Take no new leases; what runs goes on"),
		hostReclaim(s),
		hostAct(s, "resume", "Take leases again, or keep those there are after a reclaim"),
		hostAct(s, "retire", "Take a host out for ever; drain it first"),
		hostEarnings(s), hostTraffic(s), hostStatement(s), hostPayouts(s), hostBond(s))
}

func hostEnroll(s *shell) *cobra.Command {
	var name, region, fabric string
	cmd := &cobra.Command{
		Use: "enroll", Short: "Create a token with which one machine enrols",
		Example: "  muster host enroll --region eu-west --fabric rack-7",
		Args:    exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			e, err := s.client(cmd).Enroll(cmd.Context(), name, region, fabric)
			return s.result(cmd, e, err, func(p *printer) {
				p.line("Run this on the machine within %s:", time.Until(e.ExpiresAt).Round(time.Minute))
				p.line("")
				p.line("  %s", e.Command)
				p.line("")
				p.line("Then set a price: muster host set HOST --price 2.40")
			})
		},
	}
	cmd.Flags().StringVar(&name, "name", "", "name of the host (default: the machine's own)")
	cmd.Flags().StringVar(&region, "region", "", "where it stands, such as eu-west")
	cmd.Flags().StringVar(&fabric, "fabric", "", "the fast network it shares with your other hosts")
	return cmd
}

func hostList(s *shell) *cobra.Command {
	var after string
	var limit int
	cmd := &cobra.Command{
		Use: "list", Short: "List your hosts", Args: exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			page, err := s.client(cmd).Hosts(cmd.Context(), client.PageOf{Limit: limit, After: after})
			return s.result(cmd, page, err, func(p *printer) { printHosts(p, page) })
		},
	}
	cmd.Flags().IntVar(&limit, "limit", 50, "hosts at most")
	cmd.Flags().StringVar(&after, "after", "", "next of the page before")
	return cmd
}

func printHosts(p *printer, page client.Page[client.Host]) {
	if len(page.Items) == 0 {
		p.line("No hosts. Enrol one: muster host enroll --region eu-west")
		return
	}
	rows := make([][]string, len(page.Items))
	for i, h := range page.Items {
		selling := "selling"
		if !h.Selling {
			selling = h.NotSelling
		}
		rows[i] = []string{h.ID.String(), h.Name, h.Region, h.State, taken(h), gpuModels(h), prices(h), selling}
	}
	p.table([]string{"ID", "NAME", "REGION", "STATE", ">GPUS TAKEN", "MODEL", ">PER GPU-HOUR", ""}, rows)
	if page.Next != nil {
		p.line("More: --after %s", *page.Next)
	}
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
			out = append(out, micro(*o.Price))
		}
	}
	return strings.Join(out, ", ")
}

// onHost is a command about one host.
func onHost(s *shell, use, short string, f func(*cobra.Command, *client.Client, id.Host) error) *cobra.Command {
	return &cobra.Command{
		Use: use + " HOST", Short: short, Args: exactly("HOST"),
		RunE: func(cmd *cobra.Command, args []string) error {
			c := s.client(cmd)
			h, err := findHost(cmd.Context(), c, args[0])
			if err != nil {
				return err
			}
			return f(cmd, c, h)
		},
	}
}

func hostShow(s *shell) *cobra.Command {
	return onHost(s, "show", "Look at a host", func(cmd *cobra.Command, c *client.Client, h id.Host) error {
		v, err := c.Host(cmd.Context(), h)
		return s.result(cmd, v, err, func(p *printer) { printHost(p, v) })
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

func printHost(p *printer, h client.Host) {
	fabric := ""
	if h.Fabric != nil {
		fabric = *h.Fabric
	}
	p.facts("Host", h.ID.String(), "Name", h.Name, "Region", h.Region, "Fabric", fabric, "State", h.State,
		"You take it back", whenPtr(h.ReclaimAt), "Not selling", h.NotSelling,
		"Agent", h.AgentVersion, "Last seen", whenPtr(h.LastSeenAt), "Driver", h.Driver, "CPU, RAM, disk",
		fmt.Sprintf("%d cores, %d GB, %d GB", h.CPUCores, h.RAMMB>>10, h.DiskGB),
		"Disk per node", diskBound(h.DiskLimited), "Scratch", scratchText(h.ScratchGB), "Runtimes",
		strings.Join(h.Runtimes, ", "),
		"You can", strings.Join(h.Actions, ", "))
	if a := h.Agent; a != nil {
		p.facts("Agent follows", a.Channel, "Should run", a.Wanted, "Update", strings.TrimSpace(a.State+" "+a.Update), "",
			a.Detail)
	}
	if m := h.DataMonth; m != nil {
		p.facts("Sent in "+m.Month, dataUsed(m.Sent(), m.UpCapGB), "of it between ranks", gigabytes(m.OverlayUp),
			"Received", dataUsed(m.Received(), m.DownCapGB), " of it between ranks", gigabytes(m.OverlayDown), "of it images",
			pulled(m), "Takes no new leases before", whenPtr(m.CappedUntil))
	}
	p.line("")
	rows := make([][]string, len(h.GPUs))
	for i, g := range h.GPUs {
		rows[i] = []string{fmt.Sprint(g.Index), g.Model, fmt.Sprint(g.VRAMMB >> 10), power(g), g.Health, usedFor(g), g.UUID}
	}
	p.table([]string{">GPU", "MODEL", ">VRAM GB", ">POWER W", "HEALTH", "TAKEN FOR", "UUID"}, rows)
	for _, o := range h.Offers {
		price := "not listed"
		if o.Price != nil {
			price = micro(*o.Price) + " per GPU-hour"
		}
		p.line("%s: %s, at least %s, %.1f %% of the price is yours", o.GPUModel, price, counted(o.MinGPUs, "GPU"),
			float64(o.HostSharePPM)/10_000)
	}
	for _, x := range h.Problems {
		p.line("%s: %s %s", strings.ToUpper(x.Severity), x.Cause, x.Fix)
	}
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
	return firstOf(g.TakenFor, "free")
}

func hostSet(s *shell) *cobra.Command {
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
	cmd.Flags().StringVar(&channel, "agent-channel", "", "whose versions its agent follows: stable, another of the "+
		"platform's, or off to update by hand")
	cmd.Flags().Int64Var(&upCap, "up-cap-gb", 0, "GB that leases may send over its line a month before it takes no new "+
		"ones; what runs goes on; 0: no cap")
	cmd.Flags().Int64Var(&downCap, "down-cap-gb", 0, "the same for what they receive")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		change := client.HostChange{GPUModel: model, Unlist: unlist}
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
			note1(&bad, "--price", err)
			change.Price = &v
		}
		if maxDuration != "" {
			v, err := parseSeconds(maxDuration)
			note1(&bad, "--max-duration", err)
			change.MaxDuration = &v
		}
		if err := bad.Err(); err != nil {
			return err
		}
		c := s.client(cmd)
		h, err := findHost(cmd.Context(), c, args[0])
		if err != nil {
			return err
		}
		v, err := c.ChangeHost(cmd.Context(), h, change)
		return s.result(cmd, v, err, func(p *printer) { printHost(p, v) })
	}
	return cmd
}

func hostAct(s *shell, action, short string) *cobra.Command {
	return onHost(s, action, short, func(cmd *cobra.Command, c *client.Client, h id.Host) error {
		v, err := c.ActOnHost(cmd.Context(), h, action)
		return s.result(cmd, v, err, func(p *printer) { p.line("%s is %s.", v.Name, v.State) })
	})
}

func hostPayouts(s *shell) *cobra.Command {
	return &cobra.Command{
		Use: "payouts", Short: "Show what your hosts earned: in the holdback, and payable", Args: exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			b, err := s.client(cmd).PayoutBalance(cmd.Context())
			return s.result(cmd, b, err, func(p *printer) {
				p.facts("Pending", nano(b.Pending)+" "+b.Currency+", for "+seconds(b.Holdback)+" after it was booked", "Not booked",
					nano(b.NotYet)+" "+b.Currency+", measured on leases that run; booked every quarter of an hour", "Payable",
					nano(b.Payable)+" "+b.Currency)
				if len(b.Frozen) > 0 {
					p.line("Nothing becomes payable before somebody looks at %s with two accounts of the same time.",
						counted(len(b.Frozen), "lease"))
				}
			})
		},
	}
}

func hostEarnings(s *shell) *cobra.Command {
	return onHost(s, "earnings", "What a host earned, per lease and per day", func(cmd *cobra.Command, c *client.Client,
		h id.Host) error {
		e, err := c.Earnings(cmd.Context(), h)
		return s.result(cmd, e, err, func(p *printer) {
			var rows [][]string
			for _, l := range e.Leases {
				rows = append(rows, []string{l.LeaseID.Short(), l.GPUModel, fmt.Sprint(l.GPUs), when(l.StartedAt),
					orDash(whenPtr(l.EndedAt)), l.Seconds.String(), l.Earned.String()})
			}
			p.table([]string{"LEASE", "MODEL", ">GPUS", "FROM", "TO", ">SECONDS", ">EARNED"}, rows)
			for _, d := range e.Days {
				p.line("%s  %s", d.Day, d.Earned)
			}
			p.line("Earned %s %s, and %s not yet proven.", e.Total, e.Currency, e.Pending)
			if e.Returned > 0 {
				p.line("Of that, %s %s went back to renters because the host failed.", e.Returned, e.Currency)
			}
		})
	})
}
