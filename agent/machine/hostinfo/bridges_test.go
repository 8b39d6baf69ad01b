package hostinfo

import (
	"encoding/binary"
	"fmt"
	"slices"
	"testing"

	"github.com/musterhq/muster/agent/machine/hostinfo/sysfstest"
)

// acs is a PCI configuration with Access Control Services as the second extended capability.
func acs(control uint16) []byte {
	b := make([]byte, 4096)
	binary.LittleEndian.PutUint32(b[0x100:], 0x1<<16|0x0001|0x148<<20)
	binary.LittleEndian.PutUint32(b[0x148:], 0x1<<16|0x000d)
	binary.LittleEndian.PutUint16(b[0x14e:], control)
	return b
}

// The bridges above two GPUs that redirect traffic are found, each once; one GPU has none to talk to.
func TestRedirecting(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	bridge := "devices/pci0000:00/0000:00:01.0/"
	sysfstest.Write(t, root, bridge+"config", string(acs(0x1d)))
	for i, want := range [][]string{nil, {"0000:00:01.0"}} {
		device := fmt.Sprintf("%s0000:1%d:00.0", bridge, i)
		sysfstest.Link(t, root, fmt.Sprintf("bus/pci/devices/0000:1%d:00.0", i), device)
		sysfstest.Write(t, root, device+"/vendor", "0x10de\n")
		sysfstest.Write(t, root, device+"/class", "0x030200\n")
		if got := Redirecting(root); !slices.Equal(got, want) {
			t.Errorf("%d GPUs: %q", i+1, got)
		}
	}
	sysfstest.Write(t, root, bridge+"config", string(acs(0x01))) // it reports, and does not redirect
	if got := Redirecting(root); got != nil {
		t.Errorf("%q", got)
	}
	sysfstest.Write(t, root, "class/iommu/dmar0/x", "")
	if IOMMUs(root) != 1 || IOMMUs(t.TempDir()) != 0 {
		t.Errorf("%d IOMMUs", IOMMUs(root))
	}
}

func FuzzRedirects(f *testing.F) {
	f.Add(acs(0x1d))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) { redirects(b) })
}
