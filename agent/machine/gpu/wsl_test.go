package gpu

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/musterhq/muster/agent/machine/gpu/fakeprofile"
)

// Within WSL2 no PCI device is visible and much is missing: that is said once, and no GPU is to blame.
func TestWSL2_IsOneProblem(t *testing.T) {
	t.Parallel()
	h := newHost(t, rtx4090, 2)
	sys := t.TempDir()
	if err := os.MkdirAll(filepath.Join(sys, "bus/pci/devices"), 0o755); err != nil {
		t.Fatal(err)
	}
	dxg := filepath.Join(t.TempDir(), "dxg")
	if err := os.WriteFile(dxg, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	m := h.start(t, func(c *Config) { c.SysFS, c.DXG = sys, dxg })
	becomes(t, m, h.uuid(1), Healthy)
	h.fault(t, 0, func(g *fakeprofile.GPU) { g.RaiseXid(79) })
	h.fault(t, 1, func(g *fakeprofile.GPU) { g.ECCUncorrectable = 1 })
	inv := inventory(t, m)
	if p := inv.Problems; len(p) != 1 || p[0].Code != "wsl2" || p[0].Severity != "bad" || len(inv.GPUs) != 2 {
		t.Errorf("%+v", inv)
	}
	if e := m.Diagnosis.Pending(); len(e) != 0 {
		t.Errorf("%+v", e)
	}
}
