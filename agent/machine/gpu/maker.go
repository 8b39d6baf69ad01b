package gpu

import (
	"context"
	"slices"
	"strings"

	"github.com/musterhq/muster/agent/machine/gpu/wire"
	"github.com/musterhq/muster/internal/agentapi"
)

// maker is what a Monitor concludes, says and does in a vendor's own way. What the GPUs themselves are asked is the
// vendor's device.Vendor, in the probe.
type maker interface {
	// vendor is one of agentapi's; driver names its driver in sentences.
	vendor() string
	driver() string
	// onBus reports whether a PCI function, by the texts of its vendor and class, is a GPU of this maker.
	onBus(vendor, class string) bool
	// unanswering returns why the driver does not answer; faults what is wrong although it does.
	unanswering(err error, bus pciDevices) agentapi.Problem
	faults(dr *driver, sys wire.System, bus pciDevices) []agentapi.Problem
	// unreadable is what an operator does about a GPU that does not say what it is, noGPUs about a driver that lists none.
	unreadable() string
	noGPUs() string
	// nodes are the device nodes that a container needs for GPUs of these numbers.
	nodes(minors []int) []string
	// reset resets a GPU that nothing uses. together are the GPUs that this resets as well, itself included.
	reset(ctx context.Context, rs *Resets, uuid string) error
	together(reg *registry, uuid string) []string
}

// makerOf returns the maker of the host's GPUs. Of a host that has both, NVIDIA's are rented.
func makerOf(cfg Config) maker {
	if cfg.AMDTree != "" {
		return amdMaker{}
	}
	if cfg.LibraryPath != "" {
		return nvidiaMaker{}
	}
	root := cfg.SysFS
	if root == "" {
		root = "/sys"
	}
	if bus := readPCI(root); bus.known && len(bus.gpus[agentapi.NVIDIA]) == 0 && len(bus.gpus[agentapi.AMD]) > 0 {
		return amdMaker{}
	}
	return nvidiaMaker{}
}

// withVendor returns a configuration whose probe is that of a maker's GPUs.
func withVendor(cfg Config, of maker) Config {
	cfg.Exe = append(slices.Clone(cfg.Exe), of.vendor())
	return cfg
}

// Vendor returns the vendor of the GPUs that are rented here.
func (m *Monitor) Vendor() string { return m.reg.maker.vendor() }

// classIn reports whether a PCI class is one of those that begin with the given ones.
func classIn(class string, of ...string) bool {
	for _, c := range of {
		if strings.HasPrefix(class, c) {
			return true
		}
	}
	return false
}
