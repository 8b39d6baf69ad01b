package gpucheck

import (
	"fmt"
	"strings"
	"testing"

	"github.com/musterhq/muster/agent/machine/hostinfo/sysfstest"
)

// A failure between two GPUs names what this machine has that is known to break traffic between GPUs, once.
func TestFailure_Explain(t *testing.T) {
	t.Parallel()
	plain, sys := t.TempDir(), t.TempDir()
	sysfstest.Write(t, sys, "class/iommu/dmar0/x", "")
	bridge := make([]byte, 4096)
	bridge[0x100], bridge[0x106] = 0x0d, 0x1d // Access Control Services as the first capability, with redirection
	for i := range 2 {
		at := fmt.Sprintf("devices/pci0000:0%d/0000:0%d:01.0/", i, i)
		device := fmt.Sprintf("%s0000:1%d:00.0", at, i)
		sysfstest.Write(t, sys, at+"config", string(bridge))
		sysfstest.Link(t, sys, fmt.Sprintf("bus/pci/devices/0000:1%d:00.0", i), device)
		sysfstest.Write(t, sys, device+"/vendor", "0x10de\n")
		sysfstest.Write(t, sys, device+"/class", "0x030200\n")
	}
	for _, step := range []string{StepCopy, StepWrite + " (from)", StepRing, "arithmetic", ""} {
		f := &Failure{Kind: KindHang, Step: step, Text: "no end"}
		f.Explain(plain)
		if f.Text != "no end" {
			t.Errorf("%s: %s", step, f.Text)
		}
		f.Explain(sys)
		f.Explain(sys)
		between := len(step) > len("arithmetic")
		if strings.Count(f.Text, "IOMMU") != strings.Count(f.Text, "ACS)") || strings.Contains(f.Text, "IOMMU") != between ||
			strings.Contains(f.Text, "2 PCI bridges") != between || strings.Count(f.Text, "turn it off") > 1 {
			t.Errorf("%s: %s", step, f.Text)
		}
	}
	(*Failure)(nil).Explain(sys)
}
