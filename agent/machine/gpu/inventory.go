package gpu

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/musterhq/muster/agent/machine/gpu/wire"
	"github.com/musterhq/muster/internal/agentapi"
)

// Inventory is the GPU part of a host's inventory.
type Inventory struct {
	Vendor                       string
	Driver, CUDAMax, NVMLVersion string
	Simulated                    bool // the NVML library is the fake one, or AMD's tree is simulated
	GPUs                         []agentapi.GPU
	Topology, P2P                [][]string // by place in GPUs; "" = not reported
	Problems                     []agentapi.Problem
}

// Fill writes the GPU part into inv and appends the problems.
func (i Inventory) Fill(inv *agentapi.Inventory) {
	inv.Driver, inv.CUDAMax, inv.NVMLVersion, inv.Simulated = i.Driver, i.CUDAMax, i.NVMLVersion, i.Simulated
	if i.Vendor == agentapi.AMD {
		inv.Driver, inv.AMDGPU = "", i.Driver
	}
	inv.GPUs, inv.Topology, inv.P2P = i.GPUs, i.Topology, i.P2P
	inv.Problems = append(inv.Problems, i.Problems...)
}

// Inventory gets the list of GPUs from the driver, and the condition of every GPU. GPUs that disappeared since boot are
// listed with their last description; so are all GPUs while the driver does not answer. The error is ctx's: everything
// else is a problem in the inventory.
func (m *Monitor) Inventory(ctx context.Context) (Inventory, error) {
	sys, err := m.watcher.look(ctx)
	if ctx.Err() != nil {
		return Inventory{}, ctx.Err()
	}
	inv := Inventory{Vendor: m.reg.maker.vendor(), Driver: sys.Driver, CUDAMax: sys.CUDA, NVMLVersion: sys.NVML,
		Simulated: sys.Simulated}
	bus := m.watcher.pciDevices()
	if err != nil {
		inv.Problems = append(inv.Problems, m.reg.maker.unanswering(err, bus))
	}
	var all, whole []string
	for _, d := range sys.Devices {
		all = append(all, d.UUIDs()...)
		if d.UUID != "" {
			whole = append(whole, d.UUID)
		}
	}
	m.watcher.describe(ctx, all)
	peers, _ := each[[]wire.Peer](ctx, m.driver, wire.MethodPeers, whole)
	if ctx.Err() != nil {
		return Inventory{}, ctx.Err()
	}
	m.reg.mu.Lock()
	for _, r := range m.reg.mem.GPUs {
		if r.Seen != m.reg.boot || m.remaker.replaced(r, sys) {
			continue
		}
		g := r.GPU
		health := m.Diagnosis.healthOf(r)
		g.Health, g.HealthReason = string(health.State), health.Reason
		g.InUse, g.Display = m.Owners.unleased[g.UUID].by, g.Display || r.Display
		g.PCIeGenLoaded, g.PCIeWidthLoaded = r.Link.measured(m.reg.boot)
		if node, ok := bus.numa[shortPCI(g.PCIBus)]; ok && node >= 0 { // the kernel's figure is the most reliable
			g.NUMANode = agentapi.Known(node)
		}
		inv.GPUs = append(inv.GPUs, g)
	}
	slices.SortFunc(inv.GPUs, func(a, b agentapi.GPU) int {
		if a.Index != b.Index {
			return a.Index - b.Index
		}
		return strings.Compare(a.PCIBus, b.PCIBus)
	})
	inv.Problems = append(inv.Problems, m.missing()...)
	inv.Problems = append(inv.Problems, m.power.problems()...)
	inv.Problems = append(inv.Problems, m.Owners.problems(inv.GPUs)...)
	inv.Problems = append(inv.Problems, m.Checks.displayProblems(inv.GPUs)...)
	inv.Problems = append(inv.Problems, m.Diagnosis.imexProblems(inv.GPUs)...)
	inv.Problems = append(inv.Problems, fabricProblems(inv.GPUs, m.reg.fabrics)...)
	m.reg.mu.Unlock()
	inv.Problems = append(inv.Problems, m.reg.maker.faults(m.driver, sys, bus)...)
	inv.Topology, inv.P2P = matrices(withoutSlices(inv.GPUs), sys.Devices, peers)
	m.Checks.addRings(inv.GPUs, inv.Topology)
	inv.Problems = append(inv.Problems, problems(m.reg.maker, inv.GPUs, sys, err, bus)...)
	inv.Problems = append(inv.Problems, inUse(inv.GPUs)...)
	inv.Problems = append(inv.Problems, modeProblems(inv.GPUs)...)
	m.reg.mu.Lock()
	defer m.reg.mu.Unlock()
	if m.reg.wsl() { // whatever else there is follows from it
		inv.Problems = []agentapi.Problem{{
			Code:     "wsl2",
			Severity: "bad",
			Cause:    "This is Linux within Windows (WSL2), which cannot be rented out: the GPUs belong to Windows.",
			Evidence: cmp.Or(m.reg.cfg.DXG, dxg),
			Fix:      "Install Linux on the machine itself.",
		}}
	}
	return inv, nil
}

// DeviceNodes returns the device nodes that a container needs to compute on the named GPUs. A GPU whose number is
// not known has none.
func (m *Monitor) DeviceNodes(uuids ...string) []string {
	if len(uuids) == 0 {
		return nil
	}
	var minors []int
	m.reg.mu.Lock()
	defer m.reg.mu.Unlock()
	for _, uuid := range uuids {
		if r := m.reg.mem.GPUs[uuid]; r != nil && r.GPU.Minor.Value != nil {
			minors = append(minors, *r.GPU.Minor.Value)
		}
	}
	return m.reg.maker.nodes(minors)
}

// missing returns GPUs of an earlier boot that are no longer there. reg.mu is held.
func (m *Monitor) missing() []agentapi.Problem {
	if m.reg.cfg.Ephemeral {
		return nil
	}
	var out []agentapi.Problem
	for uuid, r := range m.reg.mem.GPUs {
		if r.Seen != m.reg.boot && m.reg.blind == nil && r.Instance == nil { // slices come and go with the layout
			out = append(out, agentapi.Problem{Code: "gpu_missing", Severity: "warn",
				Cause:    fmt.Sprintf("A %s that this host had is not there since it booted.", r.GPU.Model),
				Evidence: uuid + " at " + r.GPU.PCIBus,
				Fix:      "If it was not taken out on purpose, look for it on the PCI bus (lspci) and in the kernel's log."})
		}
	}
	slices.SortFunc(out, func(a, b agentapi.Problem) int { return strings.Compare(a.Evidence, b.Evidence) })
	return out
}

// matrices returns the peers as matrices, by place in gpus.
func matrices(gpus []agentapi.GPU, devices []wire.Device, peers map[string][]wire.Peer) (topology, p2p [][]string) {
	place := map[string]int{}
	for i, g := range gpus {
		place[g.UUID] = i
		topology, p2p = append(topology, make([]string, len(gpus))), append(p2p, make([]string, len(gpus)))
		topology[i][i], p2p[i][i] = "X", "X"
	}
	for uuid, row := range peers {
		i, ok := place[uuid]
		if !ok {
			continue
		}
		for _, d := range devices {
			if j, ok := place[d.UUID]; ok && d.Index < len(row) {
				topology[i][j], p2p[i][j] = row[d.Index].Level, row[d.Index].P2P
			}
		}
	}
	return topology, p2p
}

// problems returns what keeps the host from being rentable, or from working well, apart from the driver itself.
func problems(of maker, gpus []agentapi.GPU, sys wire.System, err error, bus pciDevices) []agentapi.Problem {
	var out []agentapi.Problem
	add := func(code, severity, cause, evidence, fix string) {
		out = append(out, agentapi.Problem{Code: code, Severity: severity, Cause: cause, Evidence: evidence, Fix: fix})
	}
	if err == nil && len(sys.Devices) == 0 {
		add("no_gpus", "bad", capital(of.driver())+" lists no GPU.", fmt.Sprintf("%d on the PCI bus", len(bus.numa)),
			of.noGPUs())
	}
	for _, d := range sys.Devices {
		why := ""
		switch {
		case d.Error != nil && d.Error.Code == wire.CodeNotSupported && d.UUID != "" && d.PCI == "":
			add("gpu_integrated", "warn", fmt.Sprintf("GPU %d is not offered: it is a part of the processor (Jetson), not a "+
				"card on the PCI bus.", d.Index), d.UUID,
				"A reset does not change that: rent out machines with GPUs on the PCI bus.")
			continue
		case d.Error != nil && d.Error.Code == wire.CodeNotSupported && d.PCI != "":
			add("gpu_not_rentable", "warn", fmt.Sprintf("GPU %d is not offered: %s.", d.Index, d.Error.Text), d.PCI,
				of.unreadable())
			continue
		case d.Error != nil:
			why = d.Error.Error()
		case !slices.ContainsFunc(gpus, func(g agentapi.GPU) bool { return g.UUID == d.UUID }):
			why = d.UUID + " does not answer"
		default:
			continue
		}
		add("gpu_unreadable", "warn", fmt.Sprintf("GPU %d does not say what it is.", d.Index), why,
			of.unreadable())
	}
	driven := map[string]bool{}
	for _, d := range sys.Devices {
		driven[shortPCI(d.PCI)] = true
	}
	for _, g := range gpus {
		driven[shortPCI(g.PCIBus)] = true
		if now, most := g.PCIeWidthCurrent.Or(0), g.PCIeWidthMax.Or(0); now > 0 && now < most {
			add("pcie_width", "warn", fmt.Sprintf("GPU %d runs on %d of its %d PCIe lanes.", g.Index, now, most), g.PCIBus,
				"Seat the card or its riser again, or use another slot.")
		}
		out = append(out, splitProblems(g, sys)...)
	}
	if err == nil {
		for pci := range bus.numa {
			if !driven[pci] {
				add("gpu_not_driven", "warn", "A GPU on the PCI bus is not listed by the driver.", pci,
					"It may be bound to another driver (vfio-pci, nouveau): see lspci -k.")
			}
		}
	}
	return out
}

// capital returns a sentence's beginning.
func capital(s string) string { return strings.ToUpper(s[:1]) + s[1:] }
