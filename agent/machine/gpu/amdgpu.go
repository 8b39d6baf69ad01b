package gpu

import (
	"context"
	"errors"
	"slices"
	"strconv"

	"github.com/musterhq/muster/agent/machine/gpu/amd"
	"github.com/musterhq/muster/agent/machine/gpu/wire"
	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/fault"
)

// amdMaker is AMD, whose device.Vendor is package amd.
type amdMaker struct{}

func (amdMaker) vendor() string { return agentapi.AMD }
func (amdMaker) driver() string { return "the amdgpu driver" }

// onBus includes graphics within a processor, which have the class of a card. They are not rented.
func (amdMaker) onBus(vendor, class string) bool {
	return vendor == "0x1002" && classIn(class, "0x0300", "0x0302", "0x0380", "0x1200")
}

func (amdMaker) unreadable() string {
	return "See docs/host-gpus.md, \"AMD\": a partitioned GPU is rented after amd-smi set --compute-partition SPX; " +
		"graphics within a processor never are."
}

func (amdMaker) noGPUs() string {
	return "Look at the kernel's log for amdgpu and kfd messages: KFD leaves out GPUs that it does not support."
}

func (amdMaker) unanswering(err error, _ pciDevices) agentapi.Problem {
	p := agentapi.Problem{Code: "driver_unanswering", Severity: "bad", Cause: "The amdgpu driver cannot be asked.",
		Evidence: err.Error(), Fix: "Look at the kernel's log for amdgpu messages; a driver that hangs needs a reboot."}
	var refusal *wire.Error
	if !errors.As(err, &refusal) {
		return p
	}
	switch refusal.Code {
	case wire.CodeDriverNotLoaded:
		p.Code, p.Cause = "driver_not_loaded", "This host's GPUs are AMD's, and their kernel driver is not loaded."
		p.Fix = "Load it (modprobe amdgpu), or install AMD's driver package (amdgpu-dkms)."
	case wire.CodeLibraryNotFound:
		p.Code, p.Cause = "kfd_missing", "The amdgpu driver has no compute part (KFD), so nothing can compute on the GPUs."
		p.Fix = "Use a kernel with CONFIG_HSA_AMD, or install AMD's driver package (amdgpu-dkms)."
	}
	return p
}

// faults returns that the driver does not report which ROCm it runs: offers then name none.
func (amdMaker) faults(_ *driver, sys wire.System, _ pciDevices) []agentapi.Problem {
	if len(sys.Devices) == 0 || amd.ROCm(sys.Driver) != "" {
		return nil
	}
	return []agentapi.Problem{{
		Code:     "rocm_unknown",
		Severity: "warn",
		Cause: "The newest ROCm that this driver runs is not known: renters who ask for one (rocm_max) do not find the " +
			"host.",
		Evidence: "amdgpu " + sys.Driver,
		Fix:      "Install AMD's own driver package (amdgpu-dkms), whose version says it. The kernel's own driver has none.",
	}}
}

// nodes are those that KFD and the graphics driver check: a process can use exactly the GPUs whose render nodes it may
// open.
func (amdMaker) nodes(minors []int) []string {
	nodes := []string{"/dev/kfd"}
	for _, n := range minors {
		nodes = append(nodes, "/dev/dri/renderD"+strconv.Itoa(n))
	}
	return nodes
}

// together returns the GPUs of a GPU's hive.
func (amdMaker) together(reg *registry, uuid string) []string {
	known := reg.known()
	hive := known[uuid].GPU.Hive
	out := []string{uuid}
	for other, r := range known {
		if other != uuid && hive != "" && r.GPU.Hive == hive {
			out = append(out, other)
		}
	}
	slices.Sort(out)
	return out
}

// reset refuses to end the owner's programs: the driver resets a GPU that is in use, too.
func (of amdMaker) reset(ctx context.Context, rs *Resets, uuid string) error {
	for other, by := range rs.owners.InUse(ctx, of.together(rs.reg, uuid)...) {
		return fault.New(fault.Conflict, "%s is in use on the host itself (%s)", other, by)
	}
	if rs.reg.cfg.Reset != nil {
		return rs.reg.cfg.Reset(ctx, uuid)
	}
	return rs.driver.probe.call(ctx, wire.MethodReset, uuid, nil)
}
