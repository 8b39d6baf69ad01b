package gpu

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/musterhq/muster/agent/machine/gpu/fakekfd"
	"github.com/musterhq/muster/agent/machine/gpu/wire"
	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/fault"
)

// amdHost writes a machine's tree and watches it.
func amdHost(t *testing.T, machine string, change ...func(m *fakekfd.Machine)) (*Monitor, fakekfd.Tree) {
	t.Helper()
	m, ok := fakekfd.MachineNamed(machine)
	if !ok {
		t.Fatal(machine)
	}
	m.GPUs = slices.Clone(m.GPUs)
	for _, c := range change {
		c(&m)
	}
	tree, err := fakekfd.Write(t.TempDir(), m)
	if err != nil {
		t.Fatal(err)
	}
	return watchTree(t, tree), tree
}

func watchTree(t *testing.T, tree fakekfd.Tree, change ...func(*Config)) *Monitor {
	t.Helper()
	h := host{state: t.TempDir()}
	cfg := h.config(t)
	cfg.Env, cfg.LibraryPath, cfg.AMDTree = []string{probeEnv + "=1"}, "", tree.Root
	cfg.StateDir = filepath.Join(tree.Root, "state")
	for _, c := range change {
		c(&cfg)
	}
	m, err := Start(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	return m
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestAMDInventory(t *testing.T) {
	t.Parallel()
	m, tree := amdHost(t, "mi300x")
	inv := inventory(t, m)
	if len(inv.GPUs) != 8 || len(inv.Problems) != 0 || inv.Vendor != agentapi.AMD || inv.Driver != "6.12.12" ||
		!inv.Simulated {
		t.Fatalf("%d GPUs, %+v, %+v", len(inv.GPUs), inv.Problems, inv)
	}
	g := inv.GPUs[1]
	if g.UUID != tree.UUID(1) || g.Vendor != agentapi.AMD || g.Model != "AMD Instinct MI300X" ||
		g.Architecture != "gfx942" || g.VRAMMB != 196592 || g.PCIBus != "00000000:26:00.0" || g.Hive == "" ||
		g.Hive != inv.GPUs[7].Hive || g.ComputeCap != "" || g.Minor.Or(0) != 129 || g.Runtimes["rocm"] != "6.4" ||
		g.PCIeGenMax.Or(0) != 5 || g.PowerLimitMW.Or(0) != 750_000 || !g.ECC.Or(false) || g.Health != "healthy" ||
		g.InUse != "" || g.NUMANode.Or(-1) != 0 || inv.GPUs[4].NUMANode.Or(-1) != 1 {
		t.Errorf("%+v", g)
	}
	if len(g.Links) != 7 || g.Links[0] != (agentapi.Link{Peer: "00000000:05:00.0", Type: agentapi.LinkXGMI, Gbps: 512}) {
		t.Errorf("links: %+v", g.Links)
	}
	if inv.Topology[0][7] != "XGMI" || inv.Topology[3][3] != "X" {
		t.Errorf("%v", inv.Topology)
	}
	want := []string{"/dev/kfd", "/dev/dri/renderD129", "/dev/dri/renderD131"}
	if got := m.DeviceNodes(tree.UUID(1), tree.UUID(3)); !slices.Equal(got, want) {
		t.Errorf("nodes %v, want %v", got, want)
	}
	b, err := m.Telemetry.Sample(t.Context(), g.UUID)
	must(t, err)
	if s := b.Samples[0]; *s.MemUsed != 297_570_304 || *s.PowerMW != 132_000 || *s.TempC != 41 || *s.SMMHz != 132 ||
		*s.Util != 0 || s.EnergyMJ != nil {
		t.Errorf("%+v", s)
	}
}

// What slows a GPU down is in the table of its power controller.
func TestAMDsSlowClocks(t *testing.T) {
	t.Parallel()
	m, tree := amdHost(t, "rx7900xtx")
	g := inventory(t, m).GPUs[1]
	table := make([]byte, 120)
	binary.LittleEndian.PutUint16(table, uint16(len(table)))
	table[2], table[3], table[116] = 1, 3, 1<<4 // hotspot
	must(t, tree.Set(1, "gpu_metrics", string(table)))
	b, err := m.Telemetry.Sample(t.Context(), g.UUID)
	must(t, err)
	if got := b.Samples[0].Clocks; !slices.Equal(got, []string{wire.HWThermalSlowdown}) {
		t.Errorf("%q", got)
	}
}

// A Radeon's own switch hides the slot; the kernel's own driver names no ROCm.
func TestRadeonInventory(t *testing.T) {
	t.Parallel()
	m, _ := amdHost(t, "rx7900xtx")
	inv := inventory(t, m)
	if len(inv.GPUs) != 2 || !strings.HasPrefix(inv.Driver, "kernel ") {
		t.Fatalf("%+v", inv)
	}
	g := inv.GPUs[0]
	if g.Model != "AMD Radeon RX 7900 XTX" || g.Architecture != "gfx1100" || g.Hive != "" || len(g.Links) != 0 ||
		len(g.Runtimes) != 0 || g.PCIeWidthCurrent.Or(0) != 8 || g.PCIeGenCurrent.Or(0) != 4 || !g.ECC.NotSupported {
		t.Errorf("%+v", g)
	}
	if inv.Topology[0][1] != "NODE" {
		t.Errorf("%v", inv.Topology)
	}
	if len(inv.Problems) != 1 || inv.Problems[0].Code != "rocm_unknown" || inv.Problems[0].Severity != "warn" {
		t.Errorf("%+v", inv.Problems)
	}
}

// Graphics within a processor and a partitioned GPU are named with the reason, and the others are offered.
func TestAMDGPUsThatCannotBeRented(t *testing.T) {
	t.Parallel()
	m, tree := amdHost(t, "rx7900xtx", func(m *fakekfd.Machine) {
		graphics, split := m.GPUs[0], m.GPUs[0]
		graphics.PCI, graphics.UniqueID = "0000:0b:00.0", 0
		split.PCI, split.UniqueID, split.Partition = "0000:0c:00.0", 77, "CPX"
		m.GPUs = append(m.GPUs, graphics, split)
	})
	inv := inventory(t, m)
	if len(inv.GPUs) != 2 || inv.GPUs[1].UUID != tree.UUID(1) || len(inv.Problems) != 3 {
		t.Fatalf("%+v %+v", inv.GPUs, inv.Problems)
	}
	for i, want := range []string{"no unique id", "partitioned (CPX)"} {
		p := inv.Problems[i+1]
		if p.Code != "gpu_not_rentable" || p.Severity != "warn" || !strings.Contains(p.Cause, want) {
			t.Errorf("%+v", p)
		}
	}
}

func TestAMDHealth(t *testing.T) {
	t.Parallel()
	m, tree := amdHost(t, "mi300x")
	inventory(t, m)
	must(t, tree.Set(2, "ras/umc_err_count", "ue: 0\nce: 41"))
	must(t, tree.Set(3, "ras/umc_err_count", "Query currently inaccessible"))
	must(t, tree.Set(5, "ras/gfx_err_count", "ue: 2\nce: 0\nde: 0"))
	if h := becomes(t, m, tree.UUID(5), Quarantined); !strings.Contains(h.Reason, "2 in gfx") {
		t.Errorf("%+v", h)
	}
	must(t, tree.Lose(6))
	becomes(t, m, tree.UUID(6), Quarantined)
	for _, i := range []int{0, 1, 2, 3, 4, 7} {
		if h := m.Diagnosis.Health()[tree.UUID(i)]; h.State != Healthy {
			t.Errorf("GPU %d: %+v", i, h)
		}
	}
	must(t, tree.Fail(7, "gpu_busy_percent"))
	becomes(t, m, tree.UUID(7), Suspect)
	must(t, tree.Set(4, "ras/gpu_vram_bad_pages", "0x027f5d43 : 0x00001000 : R\n0x027f5d4b : 0x00001000 : P\n"+
		"0x027f5d53 : 0x00001000 : F"))
	if h := becomes(t, m, tree.UUID(4), Suspect); !strings.Contains(h.Reason, "1 wait to be retired, 1 could not be") {
		t.Errorf("%+v", h)
	}
	var kinds []string
	for _, e := range m.Diagnosis.Pending() {
		kinds = append(kinds, e.Kind)
		if e.Vendor != agentapi.AMD {
			t.Errorf("%+v", e)
		}
	}
	if !slices.Contains(kinds, kindECC) || !slices.Contains(kinds, kindOffBus) && !slices.Contains(kinds, kindLost) {
		t.Error(kinds)
	}
	if inv := inventory(t, m); len(inv.GPUs) != 8 {
		t.Errorf("a lost GPU is not listed: %d", len(inv.GPUs))
	}
}

// A process that has only opened /dev/kfd uses no GPU; one with memory or a queue does, and is the owner's before a
// lease, and the lease's after it.
func TestAMDUse(t *testing.T) {
	t.Parallel()
	m, tree := amdHost(t, "rx7900xtx")
	m.Owners.LeasedBy(func() map[string]bool { return nil })
	inventory(t, m)
	must(t, tree.Process(4001, -1, 0))
	u, err := m.Leases.UseOf(t.Context(), tree.UUID(0))
	must(t, err)
	if len(u.Processes) != 0 || u.MemUsed != 27_918_336 {
		t.Errorf("%+v", u)
	}
	must(t, m.Leases.NoteBefore(t.Context(), tree.UUID(0), tree.UUID(1)))
	must(t, tree.Process(4002, 1, 3<<30))
	by := m.Owners.InUse(t.Context(), tree.UUID(0), tree.UUID(1))
	if len(by) != 1 || by[tree.UUID(1)] != "process 4002, 3072 MiB" {
		t.Errorf("%v", by)
	}
	must(t, tree.Queue(4001, 0))
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	err = m.Leases.WaitClean(ctx, tree.UUID(0), tree.UUID(1))
	if f := fault.From(err); f == nil || f.Kind != fault.Conflict || !strings.Contains(err.Error(), "[4001]") ||
		!strings.Contains(err.Error(), "[4002]") {
		t.Errorf("%v", err)
	}
	becomes(t, m, tree.UUID(0), Suspect)
	must(t, tree.End(4001))
	must(t, tree.End(4002))
	must(t, m.Leases.WaitClean(t.Context(), tree.UUID(0), tree.UUID(1)))
	becomes(t, m, tree.UUID(0), Healthy)
	must(t, tree.Set(0, "mem_info_vram_used", fmt.Sprint(2<<30))) // of no process: what a lease has left
	ctx, cancel = context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if err := m.Leases.WaitClean(ctx, tree.UUID(0)); err == nil || !strings.Contains(err.Error(), "2048 MB in use") {
		t.Errorf("%v", err)
	}
}

// A reset hits the whole hive, so it waits for every lease on it.
func TestAMDReset(t *testing.T) {
	t.Parallel()
	m, tree := amdHost(t, "mi300x")
	inventory(t, m)
	leased := map[string]bool{tree.UUID(6): true}
	m.Owners.LeasedBy(func() map[string]bool { return leased })
	must(t, tree.Set(2, "ras/umc_err_count", "ue: 1\nce: 0"))
	becomes(t, m, tree.UUID(2), Quarantined)
	err := m.Resets.Requalify(t.Context(), tree.UUID(2))
	if err == nil || !strings.Contains(err.Error(), "whole hive") || !strings.Contains(err.Error(), tree.UUID(6)) {
		t.Fatalf("%v", err)
	}
	m.Owners.LeasedBy(func() map[string]bool { return nil })
	must(t, tree.Process(4001, 7, 4<<30))
	if err := m.Resets.Requalify(t.Context(), tree.UUID(2)); err == nil ||
		!strings.Contains(err.Error(), tree.UUID(7)+" is in use") {
		t.Errorf("a program of the owner's would end: %v", err)
	}
	must(t, tree.End(4001))
	recover := filepath.Join(tree.Root, "kernel/debug/dri/2/amdgpu_gpu_recover")
	must(t, os.WriteFile(recover, []byte("-19\n"), 0o644))
	if err := m.Resets.Requalify(t.Context(), tree.UUID(2)); err == nil ||
		!strings.Contains(err.Error(), "reset failed (-19)") {
		t.Errorf("%v", err)
	}
	must(t, os.WriteFile(recover, []byte("0\n"), 0o644))
	if err := m.Resets.Requalify(t.Context(), tree.UUID(2)); err == nil || !strings.Contains(err.Error(), "1 in umc") {
		t.Errorf("the count is still there: %v", err)
	}
	must(t, tree.Set(2, "ras/umc_err_count", "ue: 0\nce: 0"))
	must(t, m.Resets.Requalify(t.Context(), tree.UUID(2)))
	if h := m.Diagnosis.Health()[tree.UUID(2)]; h.State != Healthy {
		t.Errorf("%+v", h)
	}
	must(t, os.Remove(recover))
	must(t, tree.Set(3, "ras/umc_err_count", "ue: 1\nce: 0"))
	becomes(t, m, tree.UUID(3), Quarantined)
	must(t, os.Remove(filepath.Join(tree.Root, "kernel/debug/dri/3/amdgpu_gpu_recover")))
	if err := m.Resets.Requalify(t.Context(), tree.UUID(3)); err == nil || !strings.Contains(err.Error(), "debugfs") {
		t.Errorf("%v", err)
	}
}

func TestAMDPowerLimit(t *testing.T) {
	t.Parallel()
	machine, _ := fakekfd.MachineNamed("rx7900xtx")
	tree, err := fakekfd.Write(t.TempDir(), machine)
	must(t, err)
	limits, err := ParsePowerLimits([]string{"250", tree.UUID(1) + "=900"})
	must(t, err)
	m := watchTree(t, tree, func(c *Config) { c.PowerLimits = limits })
	path := filepath.Join(tree.Root, "bus/pci/devices", tree.GPUs[0].PCI, "hwmon/hwmon3/power1_cap")
	eventually(t, "250 W", func() (any, bool) {
		b, err := os.ReadFile(path)
		return string(b), err == nil && string(b) == "250000000"
	})
	eventually(t, "a refusal of 900 W", func() (any, bool) {
		inv := inventory(t, m)
		return inv.Problems, slices.ContainsFunc(inv.Problems, func(p agentapi.Problem) bool {
			return p.Code == "power_limit" && strings.Contains(p.Evidence, "from 0 to 339 W")
		})
	})
}

// What keeps AMD's GPUs from being asked is said of AMD's driver.
func TestAMDDriverIsMissing(t *testing.T) {
	t.Parallel()
	for remove, code := range map[string]string{"module/amdgpu": "driver_not_loaded", "class/kfd": "kfd_missing"} {
		machine, _ := fakekfd.MachineNamed("rx7900xtx")
		tree, err := fakekfd.Write(t.TempDir(), machine)
		must(t, errors.Join(err, os.RemoveAll(filepath.Join(tree.Root, remove))))
		inv := inventory(t, watchTree(t, tree))
		if len(inv.Problems) != 1 || inv.Problems[0].Code != code || inv.Problems[0].Severity != "bad" ||
			strings.Contains(inv.Problems[0].Cause+inv.Problems[0].Fix, "NVIDIA") {
			t.Errorf("without %s: %+v", remove, inv.Problems)
		}
	}
}

// The GPUs on the bus decide whose are rented; of a host with both, NVIDIA's are, and the operator is shown why.
func TestMakerOfAHost(t *testing.T) {
	t.Parallel()
	machine, _ := fakekfd.MachineNamed("rx7900xtx")
	tree, err := fakekfd.Write(t.TempDir(), machine)
	must(t, err)
	if of := makerOf(Config{SysFS: tree.Root}); of.vendor() != agentapi.AMD {
		t.Errorf("%T", of)
	}
	if of := makerOf(Config{SysFS: t.TempDir()}); of.vendor() != agentapi.NVIDIA {
		t.Errorf("without GPUs: %T", of)
	}
	h := newHost(t, h100, 1)
	dir := filepath.Join(tree.Root, "bus/pci/devices", strings.ToLower(h.GPUs[0].PCI[4:]))
	must(t, os.MkdirAll(dir, 0o755))
	must(t, os.WriteFile(filepath.Join(dir, "vendor"), []byte("0x10de\n"), 0o644))
	must(t, os.WriteFile(filepath.Join(dir, "class"), []byte("0x030200\n"), 0o644))
	if of := makerOf(Config{SysFS: tree.Root}); of.vendor() != agentapi.NVIDIA {
		t.Errorf("of both: %T", of)
	}
	inv := inventory(t, h.start(t, func(c *Config) { c.SysFS = tree.Root }))
	if len(inv.GPUs) != 1 || !slices.ContainsFunc(inv.Problems, func(p agentapi.Problem) bool {
		return p.Code == "other_vendor" && strings.Contains(p.Cause, "2 AMD GPUs")
	}) {
		t.Errorf("%d GPUs, %+v", len(inv.GPUs), inv.Problems)
	}
}
