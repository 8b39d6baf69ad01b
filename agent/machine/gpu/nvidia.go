package gpu

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strconv"
	"strings"

	"github.com/musterhq/muster/agent/machine/gpu/amd"
	"github.com/musterhq/muster/agent/machine/gpu/wire"
	"github.com/musterhq/muster/internal/agentapi"
)

// nvidiaMaker is NVIDIA, whose device.Vendor is package probe.
type nvidiaMaker struct{}

func (nvidiaMaker) vendor() string { return agentapi.NVIDIA }
func (nvidiaMaker) driver() string { return "the NVIDIA driver" }

func (nvidiaMaker) onBus(vendor, class string) bool {
	return vendor == "0x10de" && classIn(class, "0x0300", "0x0302")
}

func (nvidiaMaker) unreadable() string {
	return "Reset it (nvidia-smi --gpu-reset) or reboot the host."
}
func (nvidiaMaker) noGPUs() string { return "Look at the kernel's log for NVRM messages." }

// unanswering returns why the driver does not answer.
func (nvidiaMaker) unanswering(err error, bus pciDevices) agentapi.Problem {
	p := agentapi.Problem{Code: "driver_unanswering", Severity: "bad", Cause: "The NVIDIA driver cannot be asked.",
		Evidence: err.Error(), Fix: "Look at the kernel's log for NVRM messages; a driver that hangs needs a reboot."}
	var refusal *wire.Error
	if !errors.As(err, &refusal) {
		return p
	}
	switch refusal.Code {
	case wire.CodeLibraryNotFound:
		p.Code, p.Cause = "nvml_missing", "There is no NVIDIA driver library (libnvidia-ml.so.1) on this host."
		p.Fix = "Install the NVIDIA driver."
		if bus.known && len(bus.numa) == 0 {
			p.Fix = "The PCI bus shows no GPU of NVIDIA or AMD either: put one in, or use another host."
		}
	case wire.CodeDriverNotLoaded:
		p.Code, p.Cause = "driver_not_loaded", "The NVIDIA kernel driver is not loaded."
		p.Fix = "Load it (modprobe nvidia); where that fails, build it for the running kernel (dkms autoinstall) or sign " +
			"it for Secure Boot."
	case wire.CodeMismatch:
		return mismatch(p.Evidence)
	}
	return p
}

// faults returns what is wrong with a driver that answers, and a warning if the host also has AMD's GPUs, which it
// cannot rent out then. Graphics within a processor have no unique id and cause no warning.
func (nvidiaMaker) faults(dr *driver, sys wire.System, bus pciDevices) []agentapi.Problem {
	out := dr.driverProblems(sys)
	if len(bus.gpus[agentapi.AMD]) > 0 {
		if others := amd.New(dr.reg.cfg.SysFS).Rentable(); len(others) > 0 {
			out = append(out, agentapi.Problem{
				Code:     "other_vendor",
				Severity: "warn",
				Cause: fmt.Sprintf("This host has NVIDIA GPUs and %d AMD GPUs. Only the NVIDIA GPUs are offered, because a host "+
					"rents out the GPUs of one vendor.", len(others)),
				Evidence: strings.Join(others, ", "),
				Fix:      "None is needed. To rent out the AMD GPUs, move them to another host.",
			})
		}
	}
	return out
}

func (nvidiaMaker) nodes(minors []int) []string {
	nodes := []string{"/dev/nvidiactl", "/dev/nvidia-uvm"}
	for _, n := range minors {
		nodes = append(nodes, "/dev/nvidia"+strconv.Itoa(n))
	}
	return nodes
}

func (nvidiaMaker) together(_ *registry, uuid string) []string { return []string{uuid} }

func (nvidiaMaker) reset(ctx context.Context, rs *Resets, uuid string) error {
	rs.reg.mu.Lock()
	simulated := rs.reg.sys.Simulated
	rs.reg.mu.Unlock()
	reset := rs.reg.cfg.Reset
	if reset == nil && simulated {
		return nil
	}
	if reset == nil {
		reset = resetGPU
	}
	// A GPU that any process has open cannot be reset, and the probe is such a process.
	release, err := rs.driver.probe.pause(ctx)
	if err != nil {
		return err
	}
	defer release()
	return reset(ctx, uuid)
}

func resetGPU(ctx context.Context, uuid string) error {
	out, err := exec.CommandContext(ctx, "nvidia-smi", "--gpu-reset", "-i", uuid).CombinedOutput()
	if err != nil {
		return fmt.Errorf("nvidia-smi: %w: %s", err, strings.TrimSpace(string(out)))
	}
	return nil
}
