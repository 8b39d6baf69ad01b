package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/musterhq/muster/agent/machine/gpu"
	"github.com/musterhq/muster/agent/machine/gpu/fakekfd"
	"github.com/musterhq/muster/agent/machine/gpu/fakeprofile"
	"github.com/musterhq/muster/agent/machine/hostinfo"
	"github.com/musterhq/muster/agent/machine/hostinfo/sysfstest"
	"github.com/musterhq/muster/agent/workload/cores"
	"github.com/musterhq/muster/internal/agentapi"
)

// The agent runs itself again as the probe: so does this test binary.
func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == "probe" {
		os.Exit(Main(build))
	}
	os.Exit(m.Run())
}

func run(t *testing.T, args ...string) string {
	t.Helper()
	cmd := root()
	var out bytes.Buffer
	cmd.SetOut(&out)
	cmd.SetArgs(args)
	if err := cmd.ExecuteContext(t.Context()); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

func TestInventory(t *testing.T) {
	dir := t.TempDir()
	library, profile := filepath.Join(dir, "libnvidia-ml.so.1"), filepath.Join(dir, "profile")
	if err := fakeprofile.BuildLibrary(library); err != nil {
		t.Fatal(err)
	}
	p, err := fakeprofile.Host("NVIDIA H100 80GB HBM3", 4, "inventory")
	if err == nil {
		p.GPUs[2].RemapFailure = 1
		err = p.Save(profile)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv(gpu.LibraryEnv, library)
	t.Setenv(fakeprofile.Env, profile)

	var inv agentapi.Inventory
	if err := json.Unmarshal([]byte(run(t, "inventory", "--json")), &inv); err != nil {
		t.Fatal(err)
	}
	if len(inv.GPUs) != 4 || !inv.Simulated || inv.Protocol != agentapi.Protocol || inv.BootID == "" ||
		inv.Topology[0][3] != "NV18" ||
		inv.GPUs[1].Health != "healthy" || inv.GPUs[2].Health != "quarantined" {
		t.Errorf("%+v", inv)
	}
	table := run(t, "inventory")
	for i, want := range []string{"The GPUs are simulated.", p.GPUs[3].UUID, "81559 MB", "gen 5 x16", "NV18",
		"quarantined (a memory row"} {
		if !strings.Contains(table, want) {
			t.Errorf("the table lacks %d, %q:\n%s", i, want, table)
		}
	}
}

func TestInventoryWithoutDriver(t *testing.T) {
	t.Setenv(gpu.LibraryEnv, "/nonexistent/libnvidia-ml.so.1")
	table := run(t, "inventory")
	if !strings.Contains(table, "Problem: There is no NVIDIA driver library") || !strings.Contains(table, "to do: ") {
		t.Error(table)
	}
}

func TestVersion(t *testing.T) {
	if got, want := run(t, "version"), fmt.Sprintf("muster-agent dev (protocol %d)\n", agentapi.Protocol); got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// A rack's machine says which GPUs are near which processors.
func TestInventoryShowsWhatIsNear(t *testing.T) {
	t.Parallel()
	d := sysfstest.NewDGX(t)
	nodes, err := hostinfo.NUMA(d.Root)
	if err != nil {
		t.Fatal(err)
	}
	inv := agentapi.Inventory{NUMA: hostinfo.Nodes(nodes)}
	for i, pci := range d.GPUs {
		inv.GPUs = append(inv.GPUs, agentapi.GPU{
			UUID:     fmt.Sprintf("GPU-%d", i),
			Index:    i,
			PCIBus:   pci,
			NUMANode: agentapi.Known(d.NUMA[i]),
		})
	}
	var out bytes.Buffer
	if err := printInventory(&out, inv); err != nil {
		t.Fatal(err)
	}
	text := strings.Join(strings.Fields(out.String()), " ")
	for _, want := range []string{"0 0-55,112-167 1031796 MB 0 1 2 3", "1 56-111,168-223 1031796 MB 4 5 6 7"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in:\n%s", want, out.String())
		}
	}
	if diff := cmp.Diff(cores.Host{}, coresOf(agentapi.Inventory{Simulated: true, GPUs: inv.GPUs}), inside); diff != "" {
		t.Errorf("simulated GPUs are near processors:\n%s", diff)
	}
}

// A simulated host that does not share its machine says so, and places its GPUs where their profile puts them.
func TestSimulatedGPUsOnAMachineOfTheirOwn(t *testing.T) {
	inv := agentapi.Inventory{Simulated: true, GPUs: []agentapi.GPU{{UUID: "GPU-0", NUMANode: agentapi.Known(0)}}}
	t.Setenv("MUSTER_FAKE_NVML_PLACED", "1")
	nodes, err := hostinfo.NUMA("")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(cores.Map(nodes, inv.GPUs), coresOf(inv), inside); diff != "" {
		t.Error(diff)
	}
}

// inside compares what the structs of package cores do not export as well.
var inside = cmp.Exporter(func(reflect.Type) bool { return true })

// The command shows AMD's GPUs as the agent's own probe finds them.
func TestInventoryOfAMDsGPUs(t *testing.T) {
	machine, ok := fakekfd.MachineNamed("mi300x")
	if !ok {
		t.Fatal("no such machine")
	}
	tree, err := fakekfd.Write(t.TempDir(), machine)
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv(gpu.TreeEnv, tree.Root)
	var inv agentapi.Inventory
	if err := json.Unmarshal([]byte(run(t, "inventory", "--json")), &inv); err != nil {
		t.Fatal(err)
	}
	if len(inv.GPUs) != 8 || inv.GPUs[7].UUID != tree.UUID(7) || inv.AMDGPU != "6.12.12" || inv.Driver != "" ||
		inv.CUDAMax != "" || !inv.Simulated || inv.AttachMode != "none" {
		t.Errorf("%+v", inv)
	}
	for _, p := range inv.Problems {
		if strings.Contains(p.Cause+p.Fix, "NVIDIA") || strings.Contains(p.Code, "cdi") {
			t.Errorf("%+v", p)
		}
	}
	if shown := run(t, "inventory"); !strings.Contains(shown, "amdgpu 6.12.12") ||
		strings.Count(shown, "AMD Instinct MI300X") != 8 {
		t.Error(shown)
	}
}
