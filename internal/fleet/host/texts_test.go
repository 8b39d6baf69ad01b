package host

import (
	"strings"
	"testing"

	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/fault"
)

// TestInventoryTextsHoldNoControlCharacters: renters read them in a terminal.
func TestInventoryTextsHoldNoControlCharacters(t *testing.T) {
	t.Parallel()
	inv := func() *agentapi.Inventory {
		return &agentapi.Inventory{CPUCores: 1, RAMMB: 1, CPUModel: "x\x1b[31m\r", NICs: []agentapi.NIC{{Driver: "a\nb"}},
			GPUs: []agentapi.GPU{{UUID: "GPU-1", Model: "H100", VRAMMB: 1}}}
	}
	clean := inv()
	if err := checkInventory(clean); err != nil {
		t.Fatal(err)
	}
	if clean.CPUModel != "x [31m " || clean.NICs[0].Driver != "a b" {
		t.Errorf("%q, %q", clean.CPUModel, clean.NICs[0].Driver)
	}
	for _, model := range []string{"\x1b[31mEVIL\x1b[0m\r", "a\u202eb", "\xff", "a\x00"} {
		bad := inv()
		bad.GPUs[0].Model = model
		if err := checkInventory(bad); !fault.Is(err, fault.Invalid) {
			t.Errorf("%q: %v", model, err)
		}
	}
}

// One odd network port does not keep a host from reporting the others.
func TestCheckInventory_LeavesOutOddDevices(t *testing.T) {
	t.Parallel()
	inv := &agentapi.Inventory{CPUCores: 1, RAMMB: 1, NICs: []agentapi.NIC{{Name: "eth0"},
		{Name: strings.Repeat("x", 16)}, {Name: "eth1", SpeedMbps: -1}}, NUMA: make([]agentapi.NUMANode, 2000)}
	err := checkInventory(inv)
	if err != nil || len(inv.NICs) != 1 || len(inv.NUMA) != 1024 || len(inv.Problems) != 2 {
		t.Errorf("%d ports, %d nodes, %+v, %v", len(inv.NICs), len(inv.NUMA), inv.Problems, err)
	}
}
