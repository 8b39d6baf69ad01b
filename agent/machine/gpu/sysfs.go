package gpu

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// pciDevices are the GPUs on the kernel's PCI bus, independent of the driver.
type pciDevices struct {
	known bool                // false: sysfs was not read
	gpus  map[string][]string // names by vendor
	numa  map[string]int      // of the rented vendor's GPUs, by shortPCI; −1 if not reported
}

func (d pciDevices) has(pci string) bool {
	_, ok := d.numa[shortPCI(pci)]
	return ok
}

// pciDevices reads sysfs. If the GPUs are simulated it reads only a tree that was configured for them.
func (wa *watcher) pciDevices() pciDevices {
	root := wa.reg.cfg.SysFS
	if root == "" {
		wa.reg.mu.Lock()
		simulated := wa.reg.sys.Simulated
		wa.reg.mu.Unlock()
		if simulated {
			return pciDevices{}
		}
		root = "/sys"
	}
	return readPCI(root).of(wa.reg.maker.vendor())
}

// of returns d with numa of a vendor's GPUs.
func (d pciDevices) of(vendor string) pciDevices {
	all := d.numa
	d.numa = map[string]int{}
	for _, name := range d.gpus[vendor] {
		d.numa[shortPCI(name)] = all[shortPCI(name)]
	}
	return d
}

func readPCI(root string) pciDevices {
	dir := filepath.Join(root, "bus/pci/devices")
	entries, err := os.ReadDir(dir)
	if err != nil {
		return pciDevices{}
	}
	out := pciDevices{known: true, numa: map[string]int{}, gpus: map[string][]string{}}
	for _, e := range entries {
		fact := func(name string) string {
			b, _ := os.ReadFile(filepath.Join(dir, e.Name(), name))
			return strings.TrimSpace(string(b))
		}
		class, vendor := fact("class"), fact("vendor")
		var of maker
		for _, m := range []maker{nvidiaMaker{}, amdMaker{}} {
			if m.onBus(vendor, class) {
				of = m
			}
		}
		if of == nil {
			continue
		}
		out.gpus[of.vendor()] = append(out.gpus[of.vendor()], e.Name())
		node, err := strconv.Atoi(fact("numa_node"))
		if err != nil {
			node = -1
		}
		out.numa[shortPCI(e.Name())] = node
	}
	return out
}
