package gpu

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// pciDevices are the NVIDIA GPUs on the kernel's PCI bus, independent of the driver.
type pciDevices struct {
	known bool           // false: sysfs was not read
	numa  map[string]int // by shortPCI; −1 if not reported
	amd   []string       // names of AMD's GPUs on the bus
}

func (d pciDevices) has(pci string) bool {
	_, ok := d.numa[shortPCI(pci)]
	return ok
}

// pciDevices reads sysfs. If the GPUs are simulated it reads only a tree that was configured for them.
func (m *Monitor) pciDevices() pciDevices {
	root := m.cfg.SysFS
	if root == "" {
		m.mu.Lock()
		simulated := m.sys.Simulated
		m.mu.Unlock()
		if simulated {
			return pciDevices{}
		}
		root = "/sys"
	}
	return readPCI(root)
}

func readPCI(root string) pciDevices {
	const nvidia, amd, vga, compute, accelerator = "0x10de", "0x1002", "0x0300", "0x0302", "0x1200"
	dir := filepath.Join(root, "bus/pci/devices")
	entries, err := os.ReadDir(dir)
	if err != nil {
		return pciDevices{}
	}
	out := pciDevices{known: true, numa: map[string]int{}}
	for _, e := range entries {
		fact := func(name string) string {
			b, _ := os.ReadFile(filepath.Join(dir, e.Name(), name))
			return strings.TrimSpace(string(b))
		}
		class, vendor := fact("class"), fact("vendor")
		if vendor == amd && (strings.HasPrefix(class, compute) || strings.HasPrefix(class, vga) ||
			strings.HasPrefix(class, accelerator)) {
			out.amd = append(out.amd, e.Name())
		}
		if vendor != nvidia || !strings.HasPrefix(class, vga) && !strings.HasPrefix(class, compute) {
			continue
		}
		node, err := strconv.Atoi(fact("numa_node"))
		if err != nil {
			node = -1
		}
		out.numa[shortPCI(e.Name())] = node
	}
	return out
}
