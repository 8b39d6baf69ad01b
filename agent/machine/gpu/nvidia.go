package gpu

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"time"

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
	reset, smi := rs.reg.cfg.Reset, rs.reg.cfg.smi
	switch {
	case reset != nil:
	case smi != nil:
		reset = func(ctx context.Context, uuid string) error { return resetBy(ctx, smi, uuid) }
	case simulated:
		return nil
	default:
		reset = resetGPU
	}
	rs.reg.lift(uuid, true)
	defer rs.reg.lift(uuid, false)
	// A GPU that any process has open cannot be reset, and the probe is such a process.
	release, err := rs.driver.probe.pause(ctx)
	if err != nil {
		return err
	}
	defer release()
	return reset(ctx, uuid)
}

// resetGPU resets a GPU with nvidia-smi.
func resetGPU(ctx context.Context, uuid string) error { return resetBy(ctx, nvidiaSMI, uuid) }

// smiRunner runs nvidia-smi and returns what it prints.
type smiRunner func(ctx context.Context, args ...string) (string, error)

// resetBy resets a GPU. Persistence mode has the GPU open, as a program has, so the reset is refused as long as it is
// on: resetBy turns it off before, and on again in the end, whatever has happened meanwhile.
func resetBy(ctx context.Context, smi smiRunner, uuid string) (err error) {
	mode, _ := smi(ctx, "--query-gpu=persistence_mode", "--format=csv,noheader", "-i", uuid)
	mode = strings.TrimSpace(mode)
	var offErr error
	if mode == "Enabled" || mode == "" { // "": it is not known
		_, offErr = smi(ctx, "-pm", "0", "-i", uuid)
	}
	if mode == "Enabled" || mode == "" && offErr == nil {
		defer func() {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), persistenceLimit)
			defer cancel()
			if _, onErr := smi(ctx, "-pm", "1", "-i", uuid); onErr != nil {
				err = errors.Join(err, fmt.Errorf("persistence mode could not be turned on again (nvidia-smi -pm 1 -i %s): %w",
					uuid, onErr))
			}
		}()
	}
	if _, err := smi(ctx, "--gpu-reset", "-i", uuid); err != nil {
		return errors.Join(err, offErr)
	}
	return nil
}

// lift keeps that a reset is under way which turns persistence mode of a GPU off, if that is on.
func (reg *registry) lift(uuid string, lifted bool) {
	reg.mu.Lock()
	defer reg.mu.Unlock()
	if r := reg.mem.GPUs[uuid]; r != nil && r.Lifted != lifted && (!lifted || r.GPU.Persistence.Or(false)) {
		r.Lifted = lifted
		reg.save()
	}
}

// restorePersistence turns persistence mode on again where an earlier agent ended within a reset. It is part of a look,
// and so never runs during a reset.
func (reg *registry) restorePersistence(ctx context.Context) {
	smi := reg.cfg.smi
	if smi == nil {
		smi = nvidiaSMI
	}
	for uuid, r := range reg.known() {
		if !r.Lifted {
			continue
		}
		if _, err := smi(ctx, "-pm", "1", "-i", uuid); err != nil {
			reg.log.Warn("persistence mode could not be turned on again", "gpu", uuid, "err", err)
		}
		reg.lift(uuid, false)
	}
}

// persistenceLimit is how long turning persistence mode on again may take: the driver sets the GPU up meanwhile.
const persistenceLimit = 30 * time.Second

func nvidiaSMI(ctx context.Context, args ...string) (string, error) {
	out, err := exec.CommandContext(ctx, "nvidia-smi", args...).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("nvidia-smi %s: %w: %s", args[0], err, strings.TrimSpace(string(out)))
	}
	return string(out), nil
}
