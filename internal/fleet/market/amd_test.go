package market_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/fleet/host"
	"github.com/musterhq/muster/internal/fleet/market"
	"github.com/musterhq/muster/internal/money"
	"github.com/musterhq/muster/internal/testing/fleettest"
	"github.com/musterhq/muster/internal/testing/fleettest/markettest"
)

// simulated returns the inventory of a host whose GPUs are those of a file of docs/hardware/simulated, which the
// agent's tests write with what the agent finds on a tree like the kernel's.
func simulated(t *testing.T, name string) agentapi.Inventory {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("../../../docs/hardware/simulated", name+".json"))
	if err != nil {
		t.Fatal(err)
	}
	inv := fleettest.Inventory(0)
	inv.Hostname, inv.Simulated, inv.AttachMode, inv.Driver, inv.CUDAMax = name, false, "nodes", "", ""
	if err := json.Unmarshal(b, &inv); err != nil {
		t.Fatal(err)
	}
	return inv
}

// What the agent finds of AMD's GPUs becomes an offer that a query finds, and that is rented: a hive whole, and never
// to someone who did not ask for AMD's.
func TestAMDsGPUsFromInventoryToClaim(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	operator := w.SignUp("amd")
	for name, price := range map[string]money.Micro{"mi300x": 2_500_000, "rx7900xtx": 300_000} {
		a := w.AddHost(operator, simulated(t, name), "", 1)
		fleettest.Activate(t, w.d, a)
		markettest.Price(w.World, w.m, operator, a.Host, price)
	}
	w.host("nvidia", 8, "3.00")
	found, err := w.m.SearchOffers(t.Context(), market.OfferSearch{Query: "gpu_vendor = amd", Limit: 10})
	w.Must(err)
	if len(found.Items) != 2 {
		t.Fatalf("%+v", found)
	}
	for _, o := range found.Items {
		want := map[string]struct {
			rocm     string
			min, of  int
			vram     int64
			arch, vd string
		}{
			"AMD Instinct MI300X":    {"6.4", 8, 8, 192, "gfx942", "amd"},
			"AMD Radeon RX 7900 XTX": {"6.2", 1, 2, 24, "gfx1100", "amd"},
		}[o.GPUModel]
		if o.ROCmMax != want.rocm || o.MinGPUs != want.min || o.GPUsFree != want.of || o.VRAMGB != want.vram ||
			o.GPUArch != want.arch || o.GPUVendor != want.vd || o.CUDAMax != "" || o.Driver != "" || o.ComputeCap != "" {
			t.Errorf("%+v", o)
		}
	}
	for _, c := range []struct {
		nodes, gpus int
		query       string
		model       string // "" = nothing fits
	}{
		{1, 8, "", "NVIDIA H100 80GB HBM3"}, // the MI300X are cheaper
		{1, 4, "gpu_model = MI300X", ""},
		{2, 1, "gpu_vendor = amd", ""},
		{1, 2, "rocm_max >= 6.4", ""},
		{1, 8, "gpu_vendor = amd rocm_max >= 6.4", "AMD Instinct MI300X"},
		{1, 1, "gpu_vendor = amd", "AMD Radeon RX 7900 XTX"},
		{1, 8, "gpu_vendor = amd", ""}, // taken
	} {
		got, err := w.rent(w.m, spec(c.nodes, c.gpus, c.query))
		model := ""
		if len(got.Nodes) > 0 && err == nil {
			model = got.Nodes[0].Model
		}
		if model != c.model {
			t.Errorf("%d × %d, %q: %q, want %q (%v)", c.nodes, c.gpus, c.query, model, c.model, err)
		}
	}
	if n := w.claims(host.ForLease); n != 17 {
		t.Errorf("%d GPUs are claimed", n)
	}
}

// A host that lists GPUs of two vendors, or would attach them in another vendor's way, is not offered, and its operator
// reads why.
func TestHostsOfTwoVendorsAreNotOffered(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	operator := w.SignUp("amd")
	mixed, lying, old := simulated(t, "rx7900xtx"), fleettest.Inventory(1), simulated(t, "rx7900xtx")
	mixed.Hostname = "mixed"
	mixed.GPUs = append(mixed.GPUs, fleettest.Inventory(1).GPUs...)
	lying.Hostname, lying.Simulated, lying.AttachMode = "lying", false, "nodes"
	old.Hostname, old.AttachMode = "old", "cdi"
	for i := range old.GPUs {
		old.GPUs[i].UUID += "f"
	}
	old.ToolkitVersion = "1.18.0"
	for why, inv := range map[string]agentapi.Inventory{"two vendors": mixed, `by "nodes"`: lying, `by "cdi"`: old} {
		a := w.AddHost(operator, inv, "", 1)
		fleettest.Activate(t, w.d, a)
		markettest.Price(w.World, w.m, operator, a.Host, 100_000)
		d, err := host.New(w.d, nil).Get(t.Context(), operator, a.Host)
		w.Must(err)
		if !strings.Contains(d.Blocked, why) {
			t.Errorf("%s: %q", inv.Hostname, d.Blocked)
		}
	}
	found, err := w.m.SearchOffers(t.Context(), market.OfferSearch{Limit: 10})
	w.Must(err)
	if len(found.Items) != 0 {
		t.Errorf("%+v", found.Items)
	}
}
