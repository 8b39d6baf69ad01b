package gpu

import (
	"debug/elf"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/musterhq/muster/agent/machine/gpu/fakeprofile"
	"github.com/musterhq/muster/internal/agentapi"
)

func TestInventory(t *testing.T) {
	t.Parallel()
	h := newHost(t, h100, 8)
	inv := inventory(t, h.start(t))
	if !inv.Simulated || inv.Driver != "550.90.07" || inv.CUDAMax != "12.4" || inv.NVMLVersion != "12.550.90.07" ||
		len(inv.Problems) != 0 {
		t.Errorf("system: %+v", inv)
	}
	if len(inv.GPUs) != 8 {
		t.Fatalf("%d GPUs, want 8", len(inv.GPUs))
	}
	for i, got := range inv.GPUs {
		want := h.GPUs[i]
		if len(got.NVLinks) != 18 || !got.NVLinks[17].Active || got.NVLinks[17].Version != 6 || got.NVLinks[17].Gbps != 200 ||
			got.NVLinks[17].Remote != "00000000:06:00.0" {
			t.Errorf("GPU %d: NVLinks %+v", i, got.NVLinks)
		}
		got.NVLinks = nil
		if diff := cmp.Diff(agentapi.GPU{
			UUID:                want.UUID,
			Index:               i,
			Vendor:              agentapi.NVIDIA,
			Kind:                agentapi.KindGPU,
			AttachName:          "nvidia.com/gpu=" + want.UUID,
			Runtimes:            map[string]string{"cuda": "12.4"},
			Links:               []agentapi.Link{{Peer: "switch", Type: agentapi.LinkNVLink, Gbps: 3600}},
			Minor:               agentapi.Known(i),
			PCIBus:              want.PCI,
			Model:               h100,
			Architecture:        "Hopper",
			VRAMMB:              81559,
			ComputeCap:          "9.0",
			PCIeGenMax:          agentapi.Known(5),
			PCIeGenCurrent:      agentapi.Known(5),
			PCIeWidthMax:        agentapi.Known(16),
			PCIeWidthCurrent:    agentapi.Known(16),
			NUMANode:            agentapi.Known(i / 4),
			MIG:                 agentapi.Known(false),
			ECC:                 agentapi.Known(true),
			Persistence:         agentapi.Known(true),
			PowerLimitMW:        agentapi.Known[int64](700_000),
			PowerDefaultMW:      agentapi.Known[int64](700_000),
			VBIOS:               agentapi.Known("96.00.74.00.01"),
			Serial:              agentapi.Known(want.Serial),
			ConfidentialCompute: agentapi.Known(false),
			Health:              "healthy",
		}, got); diff != "" {
			t.Errorf("GPU %d (-want +got):\n%s", i, diff)
		}
		for j := range inv.GPUs {
			level, p2p := "NV18", "OK"
			if i == j {
				level, p2p = "X", "X"
			}
			if inv.Topology[i][j] != level || inv.P2P[i][j] != p2p {
				t.Errorf("%d to %d: %s, %s", i, j, inv.Topology[i][j], inv.P2P[i][j])
			}
		}
	}
}

// What keeps CUDA from working although NVML answers is a problem of the host, in words that name the way out.
func TestModeProblems(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		change func(*fakeprofile.GPU)
		code   string
		cause  string
	}{
		"vGPU without a licence": {func(g *fakeprofile.GPU) { g.Virtualization = 2 }, "vgpu_unlicensed",
			"GPU 0, 1 is a vGPU"},
		"vGPU with one":  {func(g *fakeprofile.GPU) { g.Virtualization, g.VGPULicensed = 2, 1 }, "", ""},
		"passed through": {func(g *fakeprofile.GPU) { g.Virtualization = 1 }, "", ""},
		"an old driver":  {func(g *fakeprofile.GPU) { g.Virtualization = -1 }, "", ""},
		"confidential, not attested": {func(g *fakeprofile.GPU) { g.Confidential, g.ConfidentialUnready = 1, 1 },
			"confidential_not_ready", "does not accept work yet"},
		"confidential": {func(g *fakeprofile.GPU) { g.Confidential = 1 }, "", ""},
		"a Jetson": {func(g *fakeprofile.GPU) {
			g.Errors = []fakeprofile.Error{{Function: "nvmlDeviceGetPciInfo_v3", Code: 3}}
		}, "gpu_integrated", "a part of the processor"},
	} {
		h := newHost(t, h100, 2)
		for i := range 2 {
			h.fault(t, i, tc.change)
		}
		var got []string
		for _, p := range inventory(t, h.start(t)).Problems {
			if strings.Contains(p.Fix, "--gpu-reset") {
				t.Errorf("%s: %+v", name, p)
			}
			if p.Code == tc.code && strings.Contains(p.Cause, tc.cause) {
				got = append(got, p.Code)
			} else if tc.code != "gpu_integrated" {
				t.Errorf("%s: %+v", name, p)
			}
		}
		if (len(got) > 0) != (tc.code != "") {
			t.Errorf("%s: %q", name, got)
		}
	}
}

// The fabric that reaches beyond the machine is known by the driver's names of it, once a GPU is registered with it.
func TestInventoryNamesTheFabric(t *testing.T) {
	t.Parallel()
	const cluster = "0123456789abcdef0123456789abcdef"
	h := newHost(t, h100, 2)
	h.fault(t, 0, func(g *fakeprofile.GPU) { g.FabricCluster, g.FabricClique = cluster, 7 })
	h.fault(t, 1, func(g *fakeprofile.GPU) { g.FabricCluster, g.FabricClique, g.FabricState = cluster, 7, 2 })
	gpus := inventory(t, h.start(t)).GPUs
	if g := gpus[0]; g.FabricCluster != cluster || g.FabricClique != 7 {
		t.Errorf("%+v", g)
	}
	if g := gpus[1]; g.FabricCluster != "" || g.FabricClique != 0 {
		t.Errorf("not registered yet: %+v", g)
	}
}

func TestInventoryOfConsumerCards(t *testing.T) {
	t.Parallel()
	inv := inventory(t, newHost(t, rtx4090, 2).start(t))
	g := inv.GPUs[0]
	if !g.MIG.NotSupported || !g.Serial.NotSupported || !g.ConfidentialCompute.NotSupported || g.NVLinks != nil {
		t.Errorf("what the card lacks is not reported as not supported: %+v", g)
	}
	if g.ECC.Or(true) || g.Persistence.Or(true) {
		t.Errorf("what is off is not reported as off: %+v", g)
	}
	if diff := cmp.Diff([][]string{{"X", "PHB"}, {"PHB", "X"}}, inv.Topology); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([][]string{{"X", "CNS"}, {"CNS", "X"}}, inv.P2P); diff != "" {
		t.Error(diff)
	}
}

// Every shipped profile loads, and is what the Go side would write.
func TestShippedProfiles(t *testing.T) {
	t.Parallel()
	want := map[string][]string{
		"h100x8.profile":    slices.Repeat([]string{h100}, 8),
		"rtx4090x2.profile": {rtx4090, rtx4090},
		"mixed.profile":     {"NVIDIA A100-SXM4-80GB", "NVIDIA A100-SXM4-80GB", "NVIDIA L40S", rtx4090},
	}
	for name, models := range want {
		p, err := fakeprofile.Load(filepath.Join("fakenvml/profiles", name))
		if err != nil {
			t.Fatal(err)
		}
		h := &host{Profile: p, path: filepath.Join(t.TempDir(), name), state: t.TempDir()}
		if err := p.Save(h.path); err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, g := range inventory(t, h.start(t)).GPUs {
			got = append(got, g.Model)
		}
		if diff := cmp.Diff(models, got); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

// An older driver lacks functions: the probe lives and says what is not supported.
func TestOlderDriver(t *testing.T) {
	t.Parallel()
	h := newHost(t, h100, 2)
	m := h.start(t, func(c *Config) { c.LibraryPath = oldLibrary })
	inv := inventory(t, m)
	if len(inv.GPUs) != 2 || inv.CUDAMax != "12.4" {
		t.Fatalf("%+v", inv)
	}
	g := inv.GPUs[1]
	if g.PCIBus != h.GPUs[1].PCI || !g.NUMANode.NotSupported || !g.Serial.NotSupported || g.VRAMMB != 81559 {
		t.Errorf("%+v", g)
	}
	b, err := m.Telemetry.Sample(t.Context())
	if err != nil || len(b.Samples) != 2 || b.Samples[0].EnergyMJ != nil || b.Samples[0].TempC != nil ||
		b.Samples[0].PowerMW == nil {
		t.Errorf("%+v, %v", b, err)
	}
	if _, err := m.Leases.UseOf(t.Context(), h.uuid(0)); err != nil {
		t.Error(err)
	}
	h.fault(t, 0, func(g *fakeprofile.GPU) { g.RaiseXid(48) })
	becomes(t, m, h.uuid(0), Quarantined) // events come through the old call too
	m.driver.probe.mu.Lock()
	defer m.driver.probe.mu.Unlock()
	if m.driver.probe.starts != 1 {
		t.Errorf("the probe was started %d times", m.driver.probe.starts)
	}
}

func TestNoDriver(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name, code string
		change     func(*Config, *fakeprofile.Profile)
	}{
		{"no library", "nvml_missing",
			func(c *Config, _ *fakeprofile.Profile) { c.LibraryPath = "/nonexistent/libnvidia-ml.so.1" }},
		{"not loaded", "driver_not_loaded", func(_ *Config, p *fakeprofile.Profile) { p.InitError = 9 }},
		{"upgraded", "driver_mismatch", func(_ *Config, p *fakeprofile.Profile) { p.InitError = 18 }},
		{"hangs at its start", "driver_unanswering", func(c *Config, p *fakeprofile.Profile) {
			p.Hang = "nvmlInit_v2"
			c.timing.start = c.timing.call / 5
		}},
		{"probe does not start", "driver_unanswering", func(c *Config,
			_ *fakeprofile.Profile) {
			c.Exe = []string{"/nonexistent/muster-agent"}
		}},
		{"probe ends at once", "driver_unanswering", func(c *Config,
			_ *fakeprofile.Profile) {
			c.Exe = []string{"/bin/true"}
		}},
		{"probe speaks nonsense", "driver_unanswering", func(c *Config,
			_ *fakeprofile.Profile) {
			c.Exe = []string{"/bin/echo", "hello"}
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			h := newHost(t, rtx4090, 1)
			cfg := h.config(t)
			test.change(&cfg, h.Profile)
			if err := h.Save(h.path); err != nil {
				t.Fatal(err)
			}
			m := h.start(t, func(c *Config) { *c = cfg })
			inv := inventory(t, m)
			if len(inv.GPUs) != 0 || len(inv.Problems) != 1 || inv.Problems[0].Code != test.code ||
				inv.Problems[0].Severity != "bad" {
				t.Fatalf("%+v", inv)
			}
			if _, err := m.Telemetry.Sample(t.Context()); err == nil {
				t.Error("samples without a driver")
			}
			// The driver comes: nothing needs a restart.
			if test.code == "driver_not_loaded" {
				h.InitError = 0
				if err := h.Save(h.path); err != nil {
					t.Fatal(err)
				}
				becomes(t, m, h.uuid(0), Healthy)
			}
		})
	}
}

// While the driver does not answer, the GPUs that were there are listed, and none is healthy.
func TestDriverGoesAway(t *testing.T) {
	t.Parallel()
	h := newHost(t, h100, 2)
	h.start(t).Close()
	m := h.start(t)
	becomes(t, m, h.uuid(0), Healthy)
	m.Close()
	m = h.start(t, func(c *Config) { c.LibraryPath = "/nonexistent" })
	becomes(t, m, h.uuid(0), Suspect)
	inv := inventory(t, m)
	if len(inv.GPUs) != 2 || inv.GPUs[1].Health != "suspect" || inv.Problems[0].Code != "nvml_missing" {
		t.Errorf("%+v", inv)
	}
	if n := len(m.Diagnosis.Pending()); n != 0 {
		t.Errorf("%d events: a driver away is not a fault of the GPUs", n)
	}
}

func TestSysFS(t *testing.T) {
	t.Parallel()
	h := newHost(t, h100, 2)
	sys := t.TempDir()
	device := func(name, vendor, class, numa string) string {
		dir := filepath.Join(sys, "bus/pci/devices", name)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		for file, text := range map[string]string{"vendor": vendor, "class": class, "numa_node": numa} {
			if err := os.WriteFile(filepath.Join(dir, file), []byte(text+"\n"), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		return dir
	}
	device("0000:17:00.0", "0x10de", "0x030200", "0")
	second := device("0000:28:00.0", "0x10de", "0x030200", "1")
	device("0000:99:00.0", "0x10de", "0x030000", "-1") // bound to another driver
	device("0000:99:00.1", "0x10de", "0x040300", "-1") // its sound
	device("0000:9a:00.0", "0x8086", "0x030000", "-1")
	m := h.start(t, func(c *Config) { c.SysFS = sys })
	inv := inventory(t, m)
	if len(inv.Problems) != 1 || inv.Problems[0].Code != "gpu_not_driven" || inv.Problems[0].Evidence != "0000:99:00" {
		t.Errorf("%+v", inv.Problems)
	}
	if err := os.RemoveAll(second); err != nil {
		t.Fatal(err)
	}
	becomes(t, m, h.uuid(1), Quarantined)
	if e := m.Diagnosis.Pending(); len(e) != 1 || e[0].Kind != kindOffBus {
		t.Errorf("%+v", e)
	}
}

// The loader must bind NVML's functions when they are called, not when the program starts; and what go-nvml can call
// the fake library has.
func TestLinkage(t *testing.T) {
	t.Parallel()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	f, err := elf.Open(exe)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	flags, _ := f.DynValue(elf.DT_FLAGS)
	flags1, _ := f.DynValue(elf.DT_FLAGS_1)
	for _, v := range flags {
		if v&uint64(elf.DF_BIND_NOW) != 0 {
			t.Error("linked with -z now")
		}
	}
	for _, v := range flags1 {
		if v&uint64(elf.DF_1_NOW) != 0 {
			t.Error("linked with -z now")
		}
	}
	if f.Section(".interp") == nil {
		t.Error("linked statically")
	}
	lib, err := elf.Open(library)
	if err != nil {
		t.Fatal(err)
	}
	defer lib.Close()
	exported, err := lib.DynamicSymbols()
	if err != nil {
		t.Fatal(err)
	}
	has := map[string]bool{}
	for _, s := range exported {
		has[s.Name] = s.Section != elf.SHN_UNDEF
	}
	needed, err := f.ImportedSymbols()
	if err != nil {
		t.Fatal(err)
	}
	count := 0
	for _, s := range needed {
		if len(s.Name) > 4 && s.Name[:4] == "nvml" {
			count++
			if !has[s.Name] {
				t.Errorf("the fake library lacks %s", s.Name)
			}
		}
	}
	if count < 300 || !has["muster_fake_nvml"] {
		t.Errorf("%d symbols bound", count)
	}
}
