// Package nvhost checks how a host is set up for its NVIDIA GPUs, beyond what the driver's library reports of each GPU:
// the programs and kernel modules that must run next to the driver, and settings that make leases fail or run slowly.
//
// What cannot be read is no problem: a machine without systemd, nvidia-smi or readable PCI configuration is not judged
// by them.
package nvhost

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/musterhq/muster/agent/machine/hostinfo"
	"github.com/musterhq/muster/internal/agentapi"
)

// Codes of the problems.
const (
	FabricManager = "fabric_manager"
	Persistence   = "persistence_off"
	ComputeMode   = "compute_mode"
	ECC           = "ecc_disabled"
	MIGPending    = "mig_pending"
	Nouveau       = "nouveau"
	UVM           = "uvm_node_missing"
	ACS           = "acs_redirect"
)

// Codes returns all of them.
func Codes() []string {
	return []string{FabricManager, Persistence, ComputeMode, ECC, MIGPending, Nouveau, UVM, ACS}
}

// Host is where the facts are read. The zero Host is this machine.
type Host struct {
	SysFS, ProcFS, Dev string // default: /sys, /proc, /dev
	// Run runs a command and returns its output; default: with a deadline of ten seconds.
	Run func(ctx context.Context, name string, args ...string) (string, error)
}

func (h Host) defaults() Host {
	if h.SysFS == "" {
		h.SysFS = "/sys"
	}
	if h.ProcFS == "" {
		h.ProcFS = "/proc"
	}
	if h.Dev == "" {
		h.Dev = "/dev"
	}
	if h.Run == nil {
		h.Run = run
	}
	return h
}

func run(ctx context.Context, name string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.WaitDelay = time.Second // a driver that hangs keeps the process from ending
	out, err := cmd.Output()
	return string(out), err
}

// Problems returns what is wrong, or slower than it must be. driver is the version of the loaded driver.
func (h Host) Problems(ctx context.Context, driver string) []agentapi.Problem {
	h = h.defaults()
	out := slices.Concat(h.fabricManager(ctx, driver), h.modes(ctx), h.modules(), h.redirected())
	if _, err := os.Stat(filepath.Join(h.Dev, "nvidia-uvm")); os.IsNotExist(err) {
		out = append(out, problem(UVM, "warn", "The device node of CUDA's memory manager is missing.",
			filepath.Join(h.Dev, "nvidia-uvm"),
			"The agent makes it before a workload starts (nvidia-modprobe -u -c0). If that fails: apt install nvidia-modprobe."))
	}
	return out
}

func problem(code, severity, cause, evidence, fix string) agentapi.Problem {
	return agentapi.Problem{Code: code, Severity: severity, Cause: cause, Evidence: evidence, Fix: fix}
}

// MakeUVM makes the device nodes of CUDA's memory manager if they are missing: they appear when the first program asks
// for them, and CDI's device list fails without them.
func (h Host) MakeUVM(ctx context.Context) error {
	h = h.defaults()
	if _, err := os.Stat(filepath.Join(h.Dev, "nvidia-uvm")); !os.IsNotExist(err) {
		return err
	}
	if _, err := h.Run(ctx, "nvidia-modprobe", "-u", "-c0"); err != nil {
		return fmt.Errorf("nvidia-modprobe -u -c0: %w", err)
	}
	return nil
}

var versionNumber = regexp.MustCompile(`[0-9]+(\.[0-9]+){1,3}`)

// fabricManager judges the program that sets up NVSwitches. Without it, or with one of another version than the
// driver's, CUDA fails on every GPU behind the switches (error 802). The NVSwitches of HGX B200 and B300 are not on
// the PCI bus: network cards with the mark SW_MNG lead to them, and a subnet manager for NVLink, nvlsm, sets them up
// together with the fabric manager, over InfiniBand's management datagrams.
func (h Host) fabricManager(ctx context.Context, driver string) []agentapi.Problem {
	switches, managed := 0, 0
	for _, d := range h.pci() {
		switch {
		case d.vendor == nvidia && strings.HasPrefix(d.class, "0x0680"):
			switches++
		case d.vendor == mellanox && strings.HasPrefix(d.class, "0x0207") &&
			hostinfo.LeadsToNVSwitch(filepath.Join(h.SysFS, "bus/pci/devices", d.address)):
			managed++
		}
	}
	if switches+managed == 0 {
		return nil
	}
	seen := fmt.Sprintf("%d NVSwitches on the PCI bus, driver %s", switches, driver)
	install := "Install the fabric manager in the driver's version (nvidia-fabricmanager-" + branch(driver) +
		") and start it: systemctl enable --now nvidia-fabricmanager."
	if managed > 0 {
		seen = fmt.Sprintf("%d network cards that lead to NVSwitches (SW_MNG), driver %s", managed, driver)
		if !h.loaded("ib_umad") {
			seen += ", ib_umad is not loaded"
		}
		if !h.runs("nvlsm") {
			seen += ", nvlsm does not run"
		}
		install = "Load ib_umad, now and at each boot (modprobe ib_umad; echo ib_umad >/etc/modules-load.d/ib_umad.conf), " +
			"and install nvlsm, which the fabric manager starts. " + install
	}
	if !h.runs("nv-fabricmanager") {
		return []agentapi.Problem{problem(FabricManager, "bad", "The fabric manager does not run: no program can use CUDA.",
			seen, install)}
	}
	text, err := h.Run(ctx, "nv-fabricmanager", "--version")
	version := versionNumber.FindString(text)
	if err != nil || version == "" || version == driver {
		return nil
	}
	return []agentapi.Problem{problem(FabricManager, "bad", "The fabric manager has another version than the driver.",
		seen+", fabric manager "+version, install)}
}

// branch returns the first number of a driver's version.
func branch(driver string) string {
	b, _, _ := strings.Cut(driver, ".")
	return b
}

// runs reports whether a program of this name runs. The kernel keeps 15 bytes of a name.
func (h Host) runs(name string) bool {
	names, _ := filepath.Glob(filepath.Join(h.ProcFS, "[0-9]*", "comm"))
	return slices.ContainsFunc(names, func(path string) bool {
		b, err := os.ReadFile(path)
		return err == nil && strings.TrimSpace(string(b)) == name[:min(len(name), 15)]
	})
}

// modes checks the GPU settings that nvidia-smi reports.
func (h Host) modes(ctx context.Context) []agentapi.Problem {
	text, err := h.Run(ctx, "nvidia-smi", "--query-gpu=index,persistence_mode,compute_mode,ecc.mode.current,"+
		"mig.mode.current,mig.mode.pending", "--format=csv,noheader")
	if err != nil {
		return nil
	}
	found := map[string][]string{} // GPUs by problem
	for line := range strings.Lines(text) {
		f := strings.Split(line, ",")
		if len(f) != 6 {
			continue
		}
		for i := range f {
			f[i] = strings.TrimSpace(f[i])
		}
		add := func(code string, is bool) {
			if is {
				found[code] = append(found[code], f[0])
			}
		}
		add(Persistence, f[1] == "Disabled")
		add(ComputeMode, f[2] == "Prohibited" || strings.HasPrefix(f[2], "Exclusive"))
		add(ECC, f[3] == "Disabled")
		add(MIGPending, f[4] != f[5] && strings.HasSuffix(f[4], "abled") && strings.HasSuffix(f[5], "abled"))
	}
	var out []agentapi.Problem
	add := func(code, severity, cause, fix string) {
		if gpus := found[code]; len(gpus) > 0 {
			out = append(out, problem(code, severity, cause, "nvidia-smi, GPU "+strings.Join(gpus, ", "), fix))
		}
	}
	add(Persistence, "warn", "The driver is set up again for each program: starts take up to tens of seconds longer.",
		"systemctl enable --now nvidia-persistenced, then nvidia-smi -pm 1: some packages start the daemon with the mode "+
			"off. Without the daemon, nvidia-smi -pm 1 after each boot.")
	add(ComputeMode, "bad", "The compute mode lets one program or none use a GPU: workloads of several processes fail.",
		"nvidia-smi -c DEFAULT")
	add(ECC, "warn", "Error correction of the GPUs' memory is off: errors are not noticed.",
		"nvidia-smi -e 1, then reboot.")
	add(MIGPending, "warn", "A change of MIG mode waits for a reset of the GPU: what is offered will change with it.",
		"Reset the GPU when nothing runs on it: nvidia-smi --gpu-reset -i INDEX, or reboot.")
	return out
}

// modules judges kernel modules that keep NVIDIA's driver from the GPUs.
func (h Host) modules() []agentapi.Problem {
	if !h.loaded("nouveau") {
		return nil
	}
	return []agentapi.Problem{problem(Nouveau, "warn", "The nouveau driver is loaded: it may take GPUs before "+
		"NVIDIA's does.", "/proc/modules: nouveau",
		"Add blacklist nouveau and options nouveau modeset=0 to /etc/modprobe.d, then update-initramfs -u and reboot.")}
}

// loaded reports whether a kernel module is loaded.
func (h Host) loaded(module string) bool {
	b, err := os.ReadFile(filepath.Join(h.ProcFS, "modules"))
	if err != nil {
		return false
	}
	for line := range strings.Lines(string(b)) {
		if name, _, _ := strings.Cut(line, " "); name == module {
			return true
		}
	}
	return false
}

// PCI vendors.
const (
	nvidia   = "0x10de"
	mellanox = "0x15b3"
)

// pciDevice is one device of the kernel's PCI bus.
type pciDevice struct{ address, vendor, class string }

func (h Host) pci() []pciDevice {
	dir := filepath.Join(h.SysFS, "bus/pci/devices")
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil
	}
	var out []pciDevice
	for _, e := range entries {
		fact := func(name string) string {
			b, _ := os.ReadFile(filepath.Join(dir, e.Name(), name))
			return strings.TrimSpace(string(b))
		}
		out = append(out, pciDevice{e.Name(), fact("vendor"), fact("class")})
	}
	return out
}

// redirected judges PCI bridges above GPUs that send traffic between their ports up to the processor (Access Control
// Services), which makes copies between GPUs, and between GPUs and network cards, several times slower. Behind an
// IOMMU, virtual machines need it so.
func (h Host) redirected() []agentapi.Problem {
	bridges := hostinfo.Redirecting(h.SysFS)
	if len(bridges) == 0 {
		return nil
	}
	evidence := fmt.Sprintf("%d bridges above GPUs", len(bridges))
	if n := hostinfo.IOMMUs(h.SysFS); n > 0 {
		evidence += fmt.Sprintf(", %d IOMMUs", n)
	}
	return []agentapi.Problem{problem(ACS, "warn", "PCI bridges send traffic between GPUs through the processor (ACS): "+
		"copies between GPUs without NVLink, and RDMA into GPUs, are several times slower.", evidence,
		"On a machine that runs no virtual machines, turn ACS off in the firmware, or with setpci ECAP_ACS+0x6.w=0000 for "+
			"these bridges after each boot.")}
}
