package host_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/fleet/host"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/testing/dbtest"
	"github.com/musterhq/muster/internal/testing/fleettest"
)

// split returns the inventory of a machine with an A100 in two MIG devices, and an MI300X.
func split() agentapi.Inventory {
	inv := fleettest.Inventory(2)
	whole, amd := &inv.GPUs[0], &inv.GPUs[1]
	whole.Model, whole.VRAMMB, whole.MIG = "NVIDIA A100-SXM4-80GB", 81920, agentapi.Known(true)
	amd.UUID, amd.Vendor, amd.Model = "AMD-"+uuid.NewString(), agentapi.AMD, "AMD Instinct MI300X"
	amd.NVLinks, amd.Runtimes = nil, map[string]string{"rocm": "6.4"}
	amd.Links = []agentapi.Link{{Peer: "0000:26:00.0", Type: agentapi.LinkXGMI, Gbps: 512}}
	for i := range 2 {
		name := "MIG-" + uuid.NewString()
		inv.GPUs = append(inv.GPUs, agentapi.GPU{UUID: name, Index: 64 + i, Vendor: agentapi.NVIDIA, Kind: agentapi.KindSlice,
			Parent: whole.UUID, Model: "A100 80GB MIG 2g.20gb", VRAMMB: 20096, PCIBus: whole.PCIBus, Health: host.Healthy,
			AttachName: "nvidia.com/gpu=" + name, Runtimes: map[string]string{"cuda": "12.4"}})
	}
	return inv
}

// enrolled enrols a host with an inventory and returns its GPUs by UUID.
func enrolled(t *testing.T, d *db.DB, inv agentapi.Inventory) (host.Host, map[string]host.GPU) {
	t.Helper()
	org, user := fleettest.Org(t, d)
	a := fleettest.NewAgent(t)
	h, err := enroll(t, d, fleettest.Policy, a.Request(t, fleettest.Origin, fleettest.Token(t, d, org, user, ""), inv))
	if err != nil {
		t.Fatal(err)
	}
	got, err := host.New(d, nil).Get(t.Context(), account.Principal{Org: org}, h.ID)
	if err != nil {
		t.Fatal(err)
	}
	gpus := map[string]host.GPU{}
	for _, g := range got.GPUs {
		gpus[g.UUID] = g
	}
	return h, gpus
}

// deviceFacts are what a device is.
type deviceFacts struct{ Vendor, Kind, Parent, ROCm, InUse string }

func factsOf(g host.GPU) deviceFacts {
	return deviceFacts{g.Vendor, g.Kind, g.Parent, g.ROCmMax, g.InUse}
}

func TestDevicesAreStored(t *testing.T) {
	t.Parallel()
	inv := split()
	// A slice may come before its GPU.
	inv.GPUs[0], inv.GPUs[2] = inv.GPUs[2], inv.GPUs[0]
	slice, amd, whole := inv.GPUs[0].UUID, inv.GPUs[1].UUID, inv.GPUs[2].UUID
	_, gpus := enrolled(t, dbtest.New(t), inv)
	for uuid, want := range map[string]deviceFacts{
		whole: {"nvidia", "gpu", "", "", "split into instances (MIG)"},
		slice: {"nvidia", "slice", whole, "", ""},
		amd:   {"amd", "gpu", "", "6.4", ""},
	} {
		if diff := cmp.Diff(want, factsOf(gpus[uuid])); diff != "" {
			t.Errorf("%s: %s", uuid, diff)
		}
	}
	if g := gpus[slice]; g.AttachName != "nvidia.com/gpu="+slice {
		t.Errorf("attached as %q", g.AttachName)
	}
	if g := gpus[amd]; g.NVLink || len(g.Facts.Links) != 1 || g.Facts.Links[0].Gbps != 512 {
		t.Errorf("links %+v, NVLink %t", g.Facts.Links, g.NVLink)
	}
}

// An agent from before there were vendors reports what is in this text, and its Xid without a code.
func TestAgentsWithoutVendorsKeepWorking(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t)
	inv := fleettest.Inventory(1)
	b, err := json.Marshal(inv)
	if err != nil {
		t.Fatal(err)
	}
	for _, field := range []string{`"vendor"`, `"kind"`, `"parent"`, `"attach_name"`, `"links"`} {
		if strings.Contains(string(b), field) {
			t.Fatalf("the inventory has %s", field)
		}
	}
	h, gpus := enrolled(t, d, inv)
	g := gpus[inv.GPUs[0].UUID]
	if diff := cmp.Diff(deviceFacts{"nvidia", "gpu", "", "", ""}, factsOf(g)); diff != "" || !g.NVLink {
		t.Errorf("NVLink %t, %s", g.NVLink, diff)
	}
	events := []agentapi.HealthEvent{
		{Seq: 1, GPU: g.UUID, Kind: "xid", Xid: 63, State: host.Suspect},
		{Seq: 2, GPU: g.UUID, Kind: "nvswitch", Vendor: "nvidia", Code: "sxid-20034", State: host.Suspect},
	}
	if _, err := host.NewAgents(d, nil).RecordHealth(t.Context(), h.ID, agentapi.Sync{Health: events}); err != nil {
		t.Fatal(err)
	}
	var codes string
	if err := d.Pool.QueryRow(t.Context(), "SELECT string_agg(vendor || ' ' || code, ', ' ORDER BY seq) FROM gpu_health").
		Scan(&codes); err != nil || codes != "nvidia xid-63, nvidia sxid-20034" {
		t.Errorf("%q, %v", codes, err)
	}
}

// A GPU that drives a display says so in the rows that the market reads, until an inventory no longer does.
func TestDisplaysAreStored(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t)
	inv := fleettest.Inventory(2)
	inv.GPUs[1].Display = true
	h, _ := enrolled(t, d, inv)
	expect := func(want string) {
		t.Helper()
		var got string
		if err := d.Pool.QueryRow(t.Context(), "SELECT string_agg(display::text, ' ' ORDER BY idx) FROM gpu").
			Scan(&got); err != nil || got != want {
			t.Errorf("%q, %v; want %q", got, err, want)
		}
	}
	expect("false true")
	inv.GPUs[1].Display = false // as an older agent's inventory, too, says it
	if err := d.InTx(t.Context(), func(ctx context.Context, tx *db.Tx) error {
		return fleettest.RecordInventory(ctx, tx, h.ID, inv)
	}); err != nil {
		t.Fatal(err)
	}
	expect("false false")
}

// An offer shows the PCIe link of a GPU as it was under load. A value that cannot be is not believed, and an
// older agent's is the most that the GPU reports.
func TestPCIeIsStoredAsMeasured(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t)
	inv := fleettest.Inventory(4)
	for i, loaded := range []int{0, 3, 5, -1} {
		inv.GPUs[i].PCIeGenMax, inv.GPUs[i].PCIeGenLoaded = agentapi.Known(4), loaded
	}
	enrolled(t, d, inv)
	var got string
	if err := d.Pool.QueryRow(t.Context(), "SELECT string_agg(pcie_gen || ' ' || pcie_measured, ', ' ORDER BY idx) "+
		"FROM gpu").Scan(&got); err != nil || got != "4 false, 3 true, 4 false, 4 false" {
		t.Errorf("%q, %v", got, err)
	}
}

func TestImpossibleDevicesAreRefused(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t)
	org, user := fleettest.Org(t, d)
	for name, change := range map[string]func(whole, slice, amd *agentapi.GPU){
		"vendor":          func(_, _, amd *agentapi.GPU) { amd.Vendor = "matrox" },
		"AMD's UUID":      func(_, _, amd *agentapi.GPU) { amd.UUID = "GPU-1" },
		"a slice's UUID":  func(_, slice, _ *agentapi.GPU) { slice.UUID = "GPU-1" },
		"no parent":       func(_, slice, _ *agentapi.GPU) { slice.Parent = "" },
		"unknown parent":  func(_, slice, _ *agentapi.GPU) { slice.Parent = "GPU-other" },
		"parent of AMD's": func(_, slice, amd *agentapi.GPU) { slice.Parent = amd.UUID },
		"larger slice":    func(_, slice, _ *agentapi.GPU) { slice.VRAMMB = 90_000 },
		"parent of a GPU": func(whole, _, amd *agentapi.GPU) { amd.Parent = whole.UUID },
		"runtime":         func(_, _, amd *agentapi.GPU) { amd.Runtimes = map[string]string{"rocm": "<b>"} },
		"link":            func(_, _, amd *agentapi.GPU) { amd.Links[0].Type = "string" },
	} {
		inv := split()
		change(&inv.GPUs[0], &inv.GPUs[2], &inv.GPUs[1])
		_, err := enroll(t, d, fleettest.Policy, fleettest.NewAgent(t).Request(t, fleettest.Origin,
			fleettest.Token(t, d, org, user, ""), inv))
		if err == nil || !strings.Contains(err.Error(), "gpus[") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// If a GPU and a slice of it are claimed at the same time, one of the claims is refused, even without the locks of
// hosts that use cases take. Two slices never exclude each other.
func TestAGPUAndItsSlicesAreNotClaimedTogether(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t)
	inv := split()
	h, gpus := enrolled(t, d, inv)
	whole, slice, other := gpus[inv.GPUs[0].UUID].ID, gpus[inv.GPUs[2].UUID].ID, gpus[inv.GPUs[3].UUID].ID
	if _, err := d.Pool.Exec(t.Context(), "UPDATE gpu SET in_use = ''"); err != nil { // MIG was only just turned on
		t.Fatal(err)
	}
	claim := func(ref uuid.UUID, gpus ...id.GPU) error {
		var refs []host.GPURef
		for _, g := range gpus {
			refs = append(refs, host.GPURef{Host: h.ID, GPU: g})
		}
		return d.InTx(t.Context(), func(ctx context.Context, tx *db.Tx) error {
			return host.ClaimAll(ctx, tx, host.ForLease, []host.ClaimSet{{Ref: ref, GPUs: refs}}, nil)
		})
	}
	end := func(ref uuid.UUID) {
		if err := d.InTx(t.Context(), func(ctx context.Context, tx *db.Tx) error {
			return host.EndClaims(ctx, tx, ref, host.EndReleased)
		}); err != nil {
			t.Error(err)
		}
	}
	for round := range 20 {
		refs := [2]uuid.UUID{uuid.New(), uuid.New()}
		want := [2][]id.GPU{{whole}, {slice, other}}
		var errs [2]error
		var wg sync.WaitGroup
		for i := range 2 {
			wg.Go(func() { errs[i] = claim(refs[i], want[i]...) })
		}
		wg.Wait()
		if won := (errs[0] == nil) != (errs[1] == nil); !won || !errors.Is(errors.Join(errs[0], errs[1]), host.ErrTaken) {
			t.Fatalf("round %d: %v, %v", round, errs[0], errs[1])
		}
		end(refs[0])
		end(refs[1])
	}
	a, b := uuid.New(), uuid.New()
	if err := errors.Join(claim(a, slice), claim(b, other)); err != nil {
		t.Errorf("two slices: %v", err)
	}
	if err := claim(uuid.New(), whole); !errors.Is(err, host.ErrTaken) {
		t.Errorf("a GPU whose slices are claimed: %v", err)
	}
}
