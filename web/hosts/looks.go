package hosts

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/fleet/host"
	"github.com/musterhq/muster/web/view"
)

// hostState returns how a host's state is shown to its operator.
func hostState(h host.Host, now time.Time) view.State {
	switch {
	case h.State == "retired":
		return view.State{Word: "Retired", Icon: "stopped", Tone: "idle"}
	case !h.Reachable(now):
		return view.State{Word: "Offline", Icon: "offline", Tone: "bad"}
	case h.State == "draining":
		return view.State{Word: "Draining", Icon: "draining", Tone: "warn"}
	case h.CappedUntil != nil && now.Before(*h.CappedUntil):
		return view.State{Word: "Data cap used up", Icon: "host", Tone: "warn"}
	case h.Unsellable(now) != "":
		return view.State{Word: "Online, not listed", Icon: "host", Tone: "warn"}
	}
	return view.State{Word: "Online", Icon: "host", Tone: "ok"}
}

func lastReport(h host.Host, now time.Time) string {
	if h.Status.LastSyncAt == nil {
		return "no report yet"
	}
	return view.Ago(now.Sub(*h.Status.LastSyncAt))
}

// gpuSquares returns a host's GPUs as squares: filled = free, hollow = taken, red = not rentable.
func gpuSquares(gpus []host.GPU) []string {
	var row []string
	for _, g := range gpus {
		switch {
		case !g.Present || g.Health == host.Quarantined || !g.Contest.Offered():
			row = append(row, "bad")
		case g.Claim != "" || g.InUse != "":
			row = append(row, "busy")
		default:
			row = append(row, "ready")
		}
	}
	return row
}

func gpuSummary(gpus []host.GPU) string {
	if len(gpus) == 0 {
		return "no GPUs"
	}
	return fmt.Sprintf("%d × %s", len(gpus), view.ModelName(gpus[0].Model))
}

// hostProblems returns what the agent found and what keeps the host from being rented: cause, evidence, fix.
func hostProblems(d host.Detail) []ProblemView {
	var out []ProblemView
	for _, p := range d.Inventory.Problems {
		state := view.State{Word: "To fix", Icon: "warn", Tone: "warn"}
		if p.Code == agentapi.ProblemInUse || p.Code == agentapi.ProblemOwnerUse {
			state = view.State{Word: "In use by you", Icon: "host", Tone: "warn"}
		}
		if p.Severity == "bad" {
			state = view.State{Word: "Not rentable", Icon: "error", Tone: "bad"}
		}
		out = append(out, ProblemView{State: state, Cause: p.Cause, Evidence: p.Evidence, Fix: p.Fix})
	}
	for _, g := range d.GPUs {
		if p, contested := contestProblem(g); contested {
			out = append(out, p)
		}
		if g.Health == host.Healthy {
			continue
		}
		state := view.State{Word: "Suspect", Icon: "suspect", Tone: "warn"}
		if g.Health == host.Quarantined {
			state = view.State{Word: "Quarantined", Icon: "quarantine", Tone: "bad"}
		}
		fix := "Drain the host, reset the GPU, and let the agent check it; a restart alone does not requalify it."
		if strings.HasPrefix(g.HealthReason, "memory_held") {
			fix = "End the process that is named, or reset the GPU. It is offered again as soon as its memory is free."
		}
		if strings.HasPrefix(g.HealthReason, "cuda_check") {
			fix = "CUDA's words say what is wrong: 802 is the fabric manager, 803 a driver that was upgraded and not loaded. " +
				"The agent checks the GPU again every ten minutes, and it is offered again once it computes."
		}
		if strings.HasPrefix(g.HealthReason, "nvswitch_registration") {
			fix = "It is offered again once it is registered and computes. If its registration has failed, reset it, or " +
				"restart the fabric manager when nothing runs on the host."
		}
		out = append(out, ProblemView{
			State:    state,
			Cause:    fmt.Sprintf("GPU %d: %s", g.Index, g.HealthReason),
			Evidence: g.UUID,
			Fix:      fix,
		})
	}
	return out
}

// contestProblem describes a GPU that hosts of other operators list, too; contested is false if its operator need not
// act.
func contestProblem(g host.GPU) (p ProblemView, contested bool) {
	p = ProblemView{
		State:    view.State{Word: "Contested", Icon: "error", Tone: "bad"},
		Cause:    fmt.Sprintf("GPU %d is listed by another operator, too", g.Index),
		Evidence: g.UUID,
		Fix: "It is not offered until we have decided whose it is; leases that run on it continue. Write to us with proof, " +
			"such as the invoice and a photograph of the serial number.",
	}
	switch {
	case g.Contest == host.NotContested, g.Contest == host.Incumbent && g.ContestDecided:
		return ProblemView{}, false
	case g.Contest == host.Incumbent:
		p.State = view.State{Word: "Contested", Icon: "warn", Tone: "warn"}
		p.Fix = "It is offered as before, because it was rented on your host already. Write to us with proof that it is " +
			"yours, such as the invoice and a photograph of the serial number."
	case g.Contest == host.Challenger && g.ContestDecided:
		p.Cause = fmt.Sprintf("GPU %d belongs to another operator", g.Index)
		p.Fix = "We decided so; the notice has the reason. It is not offered on this host. Write to us if you have new proof."
	}
	return p, true
}

func hostFacts(d host.Detail) [][2]string {
	i := d.Inventory
	facts := [][2]string{
		{"System", i.OS}, {"Kernel", i.Kernel}, {"CPU", fmt.Sprintf("%s, %d threads", i.CPUModel, i.CPUCores)},
		{"NUMA nodes", numaText(i)}, {"Network ports", nicsText(i.NICs)},
		{"RDMA ports", hcasText(i.HCAs)}, {"All-reduce over RDMA", measuredRDMA(d.RDMA)},
		{"Ring over NVLink", measuredNVLink(d.NVLink())},
		{"Memory", view.GiB(i.RAMMB)}, {"Disk for containers", fmt.Sprintf("%d GB", i.DiskGB)},
		{"Disk limit per node enforced", yesNo(i.DiskLimited)}, {"Scratch for nodes", scratchText(d.ScratchGB)},
		{"Runtimes", runtimesText(d.Runtimes)},
		{"Driver", i.Driver}, {"AMD's driver", i.AMDGPU}, {"Highest CUDA version", i.CUDAMax}, {"Docker", i.DockerVersion},
		{"NVIDIA Container Toolkit", i.ToolkitVersion},
		{"Containers get GPUs by", attachText(i.AttachMode)}, {"Reachable by other hosts", yesNo(i.MultiNode)},
		{"Kernel WireGuard", yesNo(i.KernelWireGuard)},
		{"Each lease, up", leaseLine(i.LeaseUpMbps)}, {"Each lease, down", leaseLine(i.LeaseDownMbps)},
		{"Ephemeral", ephemeral(d.Host)},
		{"Public images held", heldImages(i.Images)}, {"Fetches popular images when idle", yesNo(i.Prefetch)},
	}
	out := facts[:0]
	for _, f := range facts {
		if f[1] != "" {
			out = append(out, f)
		}
	}
	return out
}

func ephemeral(h host.Host) string {
	if !h.Ephemeral {
		return ""
	}
	return "yes: retired after a day without a report or a lease"
}

// numaText describes which GPUs are near which processors; "" if all are equally near.
func numaText(i agentapi.Inventory) string {
	if len(i.NUMA) < 2 {
		return ""
	}
	var out []string
	for _, n := range i.NUMA {
		text := fmt.Sprintf("%d: threads %s, %s", n.Node, n.CPUs, view.GiB(n.MemoryMB))
		if near := i.GPUsNear(n.Node); len(near) > 0 {
			text += ", GPU " + strings.Join(near, " ")
		}
		out = append(out, text)
	}
	return strings.Join(out, "; ")
}

// nicsText describes the network ports that have a link.
func nicsText(nics []agentapi.NIC) string {
	var out []string
	for _, n := range nics {
		if !n.Up {
			continue
		}
		var facts []string
		if n.SpeedMbps > 0 {
			facts = append(facts, strconv.FormatFloat(float64(n.SpeedMbps)/1000, 'f', -1, 64)+" Gbit/s")
		}
		for _, f := range []string{n.Driver, n.RDMA} {
			if f != "" {
				facts = append(facts, f)
			}
		}
		if n.Underlay {
			facts = append(facts, "first choice between hosts")
		}
		text := n.Name
		if len(facts) > 0 {
			text += " (" + strings.Join(facts, ", ") + ")"
		}
		out = append(out, text)
	}
	return strings.Join(out, "; ")
}

// measuredRDMA describes what clusters measured over the host's RDMA ports, "" if nothing was.
func measuredRDMA(m *host.MeasuredRDMA) string {
	if m == nil {
		return ""
	}
	s := fmt.Sprintf("%s Gbit/s with %d hosts, by NCCL %s on %s", view.Gbps(m.BusbwGbps), m.Hosts, m.NCCL,
		m.At.Format("2 Jan 2006, 15:04 MST"))
	if m.LocalGbps > 0 {
		s += fmt.Sprintf("; %s Gbit/s between its own GPUs", view.Gbps(m.LocalGbps))
	}
	return s
}

// measuredNVLink describes how fast the host's GPUs send to each other over NVLink; "" if it was not measured.
func measuredNVLink(models []host.MeasuredNVLink) string {
	var out []string
	for _, m := range models {
		out = append(out, fmt.Sprintf("%s: %s Gbit/s from each GPU to the next, GPU %d is the slowest, on %s",
			view.ModelName(m.Model), view.Gbps(m.Gbps), m.Slowest, m.At.Format("2 Jan 2006, 15:04 MST")))
	}
	return strings.Join(out, "; ")
}

// hcasText describes the RDMA ports: "mlx5_0 (InfiniBand, 400 Gbit/s)".
func hcasText(hcas []agentapi.HCA) string {
	var out []string
	for _, h := range hcas {
		facts := []string{h.LinkLayer}
		switch {
		case h.NVSwitch:
			facts = append(facts, "of the GPUs' switches")
		case h.State != "ACTIVE":
			facts = append(facts, "no link")
		case h.Gbps > 0:
			facts = append(facts, strconv.FormatFloat(h.Gbps, 'f', -1, 64)+" Gbit/s")
		}
		out = append(out, h.Device+" ("+strings.Join(facts, ", ")+")")
	}
	return strings.Join(out, "; ")
}

// leaseLine describes the bandwidth limit of each lease; "" if the operator sets none.
func leaseLine(mbps int) string {
	if mbps == 0 {
		return ""
	}
	return fmt.Sprintf("at most %d Mbit/s", mbps)
}

// runtimesText lists the OCI runtimes that renters can choose from.
func runtimesText(runtimes []string) string {
	return strings.ReplaceAll(strings.Join(runtimes, ", "), agentapi.RuntimeRunsc, "runsc (gVisor)")
}

func heldImages(images []agentapi.CachedImage) string {
	var bytes int64
	for _, i := range images {
		bytes += i.Bytes
	}
	if len(images) == 0 {
		return "none"
	}
	return fmt.Sprintf("%d, %s", len(images), view.Bytes(bytes))
}

// attachText returns how containers get GPUs in words.
func attachText(mode string) string {
	switch mode {
	case "cdi":
		return "CDI"
	case "nvidia":
		return "NVIDIA's runtime"
	case "nodes":
		return "their device nodes"
	case "none":
		return "nothing: only for simulated GPUs"
	}
	return mode
}

func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

// powerLimit describes a GPU's power limit and its default one; "" if they are equal.
func powerLimit(g agentapi.GPU) string {
	limit, made := g.PowerLimitMW.Or(0), g.PowerDefaultMW.Or(0)
	if limit == 0 || made == 0 || limit == made {
		return ""
	}
	return fmt.Sprintf("%d of %d W", limit/1000, made/1000)
}

func gpuRow(g host.GPU, s host.Sample) GPURow {
	row := GPURow{
		Index: g.Index, UUID: g.UUID, Model: g.Model, HealthReason: g.HealthReason, PowerShare: -1,
		Use: "free", Health: view.State{Word: "Healthy", Icon: "healthy", Tone: "ok"}, Trouble: g.Health != host.Healthy,
	}
	switch {
	case g.Present && g.Health == host.Healthy && g.Degraded != "":
		row.Health = view.State{Word: "Degraded", Icon: "suspect", Tone: "warn"}
		row.HealthReason, row.Trouble = g.SlowerThanUsual(), true
	case !g.Present:
		row.Health, row.Trouble = view.State{Word: "Not there", Icon: "offline", Tone: "bad"}, true
	case g.Health == host.Suspect:
		row.Health = view.State{Word: "Suspect", Icon: "suspect", Tone: "warn"}
	case g.Health == host.Quarantined:
		row.Health = view.State{Word: "Quarantined", Icon: "quarantine", Tone: "bad"}
	}
	switch g.Claim {
	case host.ForLease:
		row.Use = "leased"
	case host.ForQuote:
		row.Use = "held by a quote"
	case host.ForOwnUse:
		row.Use = "own use"
	case host.ForMaintenance:
		row.Use = "maintenance"
	case "":
		switch {
		case !g.Contest.Offered():
			row.Use = "contested, not offered"
		case g.InUse != "":
			row.Use = "in use by you (" + g.InUse + ")"
		}
	}
	row.MayRequalify = g.Present && g.Health != host.Healthy && g.Claim == ""
	row.Limit = powerLimit(g.Facts)
	if s.At.IsZero() {
		return row
	}
	known := func(n int) string {
		if n < 0 {
			return ""
		}
		return fmt.Sprint(n)
	}
	row.Temp, row.Power, row.Util = known(s.TempC), known(s.PowerW), known(s.Util)
	row.Slow = s.SlowedBy()
	if v := s.Speed; v != nil && v.SMMHz >= 0 {
		row.Clock = fmt.Sprintf("%d MHz", v.SMMHz)
	}
	if v := s.Speed; v != nil && v.Fan >= 0 {
		row.Fan = fmt.Sprintf("%d %%", v.Fan)
	}
	if limit := g.Facts.PowerLimitMW.Or(0); limit > 0 && s.PowerW >= 0 {
		row.PowerShare = 100 * 1000 * float64(s.PowerW) / float64(limit)
	}
	return row
}

// scratchText describes a host's scratch space; "" if it offers none.
func scratchText(gb int64) string {
	if gb == 0 {
		return ""
	}
	return fmt.Sprintf("%d GB for all together", gb)
}
