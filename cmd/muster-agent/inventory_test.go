package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/musterhq/muster/agent/gpu"
	"github.com/musterhq/muster/agent/gpu/fakeprofile"
	"github.com/musterhq/muster/internal/agentapi"
)

// The agent runs itself again as the probe: so does this test binary.
func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == "probe" {
		main()
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
	if len(inv.GPUs) != 4 || !inv.Simulated || inv.Protocol != agentapi.Protocol || inv.BootID == "" || inv.Topology[0][3] != "NV18" ||
		inv.GPUs[1].Health != "healthy" || inv.GPUs[2].Health != "quarantined" {
		t.Errorf("%+v", inv)
	}
	table := run(t, "inventory")
	for i, want := range []string{"The GPUs are simulated.", p.GPUs[3].UUID, "81559 MB", "gen 5 x16", "NV18", "quarantined (a memory row"} {
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
