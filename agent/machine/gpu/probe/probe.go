// Package probe is NVIDIA's device.Vendor: the child process that loads NVML, and the only importer of go-nvml.
//
// Invariants: no NVML function is called before its symbol was looked up in the loaded library, because a symbol
// missing in an older driver ends the process and recover cannot catch it. A host without the library, the driver or a
// GPU gets an answer that reports this; the probe does not end.
package probe

import (
	"context"
	"io"
	"sync"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/musterhq/muster/agent/machine/gpu/device"
	"github.com/musterhq/muster/agent/machine/gpu/wire"
)

// fakeSymbol is exported only by the fake library.
const fakeSymbol = "muster_fake_nvml"

// Run answers requests from in on out until in ends. An empty libraryPath means libnvidia-ml.so.1 where the loader
// finds it. The process should exit when Run returns, even if calls are still stuck.
func Run(ctx context.Context, in io.Reader, out io.Writer, libraryPath string) error {
	var opts []nvml.LibraryOption
	if libraryPath != "" {
		opts = append(opts, nvml.WithLibraryPath(libraryPath))
	}
	p := &probe{lib: nvml.New(opts...), has: map[string]bool{}, handles: map[string]nvml.Device{}, sleep: sleep}
	return device.Serve(ctx, in, out, p)
}

type probe struct {
	lib nvml.Interface

	record func(symbol string, ret nvml.Return, value any) // each call of the library; nil: not recorded

	sleep func(ctx context.Context, d time.Duration)

	starting sync.Mutex // held during nvmlInit, which may take seconds
	started  bool
	watching bool

	symbols sync.Mutex
	has     map[string]bool

	finding sync.Mutex
	handles map[string]nvml.Device // by UUID, for the life of this process
}

// Start loads the library and starts NVML, at the first request and again after a failure: a driver may be installed
// later.
func (p *probe) Start() *wire.Error {
	p.starting.Lock()
	defer p.starting.Unlock()
	if p.started {
		return nil
	}
	if ret := p.lib.Init(); ret != nvml.SUCCESS {
		// initText gives the reason without a library call: the library did not start.
		return &wire.Error{Code: int(ret), Call: "nvmlInit_v2", Text: initText(ret)}
	}
	p.started = true
	return nil
}

func initText(ret nvml.Return) string {
	switch ret {
	case nvml.ERROR_LIBRARY_NOT_FOUND:
		return "the NVML library cannot be loaded"
	case nvml.ERROR_DRIVER_NOT_LOADED:
		return "the NVIDIA driver is not loaded"
	case nvml.ERROR_LIB_RM_VERSION_MISMATCH:
		return "the NVML library and the loaded driver are of different versions"
	}
	return "NVML does not start"
}

// symbol reports whether the loaded library has a function, in any of the versions that go-nvml chooses from.
func (p *probe) symbol(name string) bool {
	p.symbols.Lock()
	defer p.symbols.Unlock()
	has, known := p.has[name]
	if !known {
		for _, version := range versions[name] {
			has = has || p.lib.Extensions().LookupSymbol(name+version) == nil
		}
		has = has || p.lib.Extensions().LookupSymbol(name) == nil
		p.has[name] = has
	}
	return has
}

// versions are the newer versions that go-nvml calls instead if the library has them.
var versions = map[string][]string{
	"nvmlComputeInstanceGetInfo":            {"_v2"},
	"nvmlDeviceGetAttributes":               {"_v2"},
	"nvmlDeviceGetCount":                    {"_v2"},
	"nvmlDeviceGetHandleByIndex":            {"_v2"},
	"nvmlDeviceGetHandleByPciBusId":         {"_v2"},
	"nvmlDeviceGetPciInfo":                  {"_v2", "_v3"},
	"nvmlDeviceGetNvLinkRemotePciInfo":      {"_v2"},
	"nvmlEventSetWait":                      {"_v2"},
	"nvmlDeviceGetComputeRunningProcesses":  {"_v2", "_v3"},
	"nvmlDeviceGetGraphicsRunningProcesses": {"_v2", "_v3"},
}

// device returns a GPU's handle: the one found before, or else the GPU at the PCI bus id where it was last, or else the
// one found among all GPUs. NVML's own look-up by UUID is not used: it goes through all GPUs and may fail if any of
// them is lost. An error means that the GPU was not found, not that it is defective.
func (p *probe) device(uuid, pci string) (nvml.Device, *wire.Error) {
	p.finding.Lock()
	d, ok := p.handles[uuid]
	p.finding.Unlock()
	if ok {
		return d, nil
	}
	if isSlice(uuid) { // its handle ends when it is recreated
		d, err := p.findSlice(uuid, pci)
		if err != nil {
			err.Lookup = true
		}
		return d, err
	}
	d, err := p.find(uuid, pci)
	if err != nil {
		err.Lookup = true
		return nil, err
	}
	p.keepHandle(uuid, d)
	return d, nil
}

func (p *probe) keepHandle(uuid string, d nvml.Device) {
	p.finding.Lock()
	defer p.finding.Unlock()
	p.handles[uuid] = d
}

func (p *probe) find(uuid, pci string) (nvml.Device, *wire.Error) {
	if pci != "" {
		d, err := call(p, "nvmlDeviceGetHandleByPciBusId", func() (nvml.Device, nvml.Return) {
			return p.lib.DeviceGetHandleByPciBusId(pci)
		})
		if err == nil {
			var there string
			if there, err = call(p, "nvmlDeviceGetUUID", d.GetUUID); there == uuid {
				return d, nil
			}
		}
		if dead(err) {
			return nil, err
		}
	}
	n, err := call(p, "nvmlDeviceGetCount", p.lib.DeviceGetCount)
	if err != nil {
		return nil, err
	}
	for i := range n {
		d, err := p.byIndex(i)
		if err != nil {
			continue // the fault of another GPU, or of this one: its handle would show it
		}
		if there, err := call(p, "nvmlDeviceGetUUID", d.GetUUID); err == nil && there == uuid {
			return d, nil
		}
	}
	return nil, &wire.Error{Code: wire.CodeNotFound, Call: "nvmlDeviceGetHandleByIndex", Text: "no GPU has this UUID"}
}

// text returns NVML's name of a return code.
func (p *probe) text(ret nvml.Return) string {
	if p.symbol("nvmlErrorString") {
		return p.lib.ErrorString(ret)
	}
	return "NVML error"
}
