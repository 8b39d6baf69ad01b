// Package fakeprofile writes the file that drives the fake NVML library (agent/machine/gpu/fakenvml), for
// `muster dev`'s local hosts and for tests: which GPUs a host has, and the faults that they show. At every call the
// library reads the file again if it has changed, so a fault written here shows at once in a running agent.
//
// Invariants: files are replaced atomically, and Parse and the library read the same values back that Format wrote.
package fakeprofile

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// Env is the environment variable that names the profile file to the fake library.
const Env = "MUSTER_FAKE_NVML"

// MaxGPUs is how many GPUs a profile may have. The other constants limit what may repeat within a GPU.
const (
	MaxGPUs      = 16
	maxXids      = 64
	maxErrors    = 8
	maxInstances = 7
	maxText      = 95
	maxFile      = 256 << 10
)

// Profile is a simulated host: its driver and its GPUs in index order.
type Profile struct {
	Version   string // of the driver; "" = a recent one
	NVML      string
	Hang      string // function of the library's start that hangs: nvmlInit_v2
	Stall     string // function that hangs for every GPU, "*" = each function: the whole driver hangs
	CUDA      int64  // 12040 is 12.4
	InitError int64  // NVML return code of the start; 0 = success
	ClockMS   int64  // ≥ 0: the library's clock is fixed there; −1: it is the machine's
	// LostHides 1: while a GPU is lost, a look-up of any GPU by UUID answers GPU_IS_LOST, as nvml.h allows.
	LostHides int64
	GPUs      []GPU
}

// GPU is one simulated device. Modes (ECC, MIG, …) are −1 where not supported.
type GPU struct {
	UUID, Name, Serial, VBIOS, PCI string
	Arch, CCMajor, CCMinor         int64
	MemoryMiB, ReservedMiB         int64

	PCIeGen, PCIeWidth int64
	// values that two GPUs share decide their topology; switch 0 = none, NUMA −1 = not reported
	PCIeSwitch, Root, NUMA int64
	P2P                    int64 // 1: two GPUs with 1 have direct peer access
	// MemoryNode is the NUMA node that consists of the GPU's own memory (Grace), −1: its memory is no node; Minor is N of
	// /dev/nvidiaN, −1: the GPU's place in the profile.
	MemoryNode, Minor      int64
	NVLinks, NVLinkVersion int64  // the version is NVML's nvmlNvlinkVersion_t, an enum: 4.0 is 6
	NVLinksDown            int64  // number of NVLinks, from the first, that are inactive
	NVLinkRemote           string // "switch", or the other GPU's PCI bus id
	// FabricState is NVML_GPU_FABRIC_STATE_…, −1: the driver does not have the call; FabricStatus is an nvmlReturn_t,
	// FabricHealth the health mask.
	FabricState, FabricStatus, FabricHealth int64
	// FabricWait is how many calls of a process are answered that registration is in progress, FabricSettles how many are
	// after a reset.
	FabricWait, FabricSettles int64

	FabricCluster string // clusterUuid, 32 hexadecimal digits; "" = zeros
	FabricClique  int64

	// Virtualization is an nvmlGpuVirtualizationMode_t, −1: not supported; 2 is a vGPU, which VGPULicensed 1 has a licence
	// for. ConfidentialUnready 1: with confidential computing, the GPUs do not accept work (that of the first GPU counts).
	Virtualization, VGPULicensed, ConfidentialUnready int64

	ECC, MIG, Persistence int64
	MIGPending            int64      // mode after the next reset; −1: same as MIG
	Instances             []Instance // MIG devices, in order of their GPU instance ids from 1
	Confidential          int64
	Display               int64 // 1: a display is active on it
	Unified               int64 // 1: it has no memory of its own (DGX Spark), so memory calls are not supported
	PowerIdleMW           int64
	PowerLimitMW          int64
	TempIdle, TempBusy    int64
	Load                  int64 // percent, in addition to the load of attached processes
	// ClockSMMHz and ClockMemMHz are the clocks under load, 0: not supported. An idle GPU has a third of them.
	ClockSMMHz, ClockMemMHz int64
	ClocksReasons           int64 // bits of nvmlClocksEventReasons that the load does not explain
	// PCIeGenNow and PCIeWidthNow are the PCIe link under load, 0: the most it can be.
	PCIeGenNow, PCIeWidthNow  int64
	PCIeReplays, NVLinkErrors int64
	Fans                      int64 // on the GPU; 0: the machine's fans cool it
	Lost, Absent              int64 // 1: fell off the bus; not enumerated at all
	ECCUncorrectable          int64
	ECCCorrected              int64
	RemapCorrected            int64
	RemapUncorrectable        int64
	RemapPending              int64
	RemapFailure              int64
	RecoveryAction            int64  // NVML_GPU_RECOVERY_ACTION_…; −1: not reported
	StuckMiB                  int64  // memory that stays in use though no process holds it
	Hang, Crash               string // NVML function that hangs, or kills the calling process; "*" = each
	Errors                    []Error
	Xids                      []Xid
}

// Instance is a MIG device of a GPU.
type Instance struct {
	UUID      string // MIG-…
	MemoryMiB int64
}

// Error makes an NVML function return an error code.
type Error struct {
	Function string // "nvmlDeviceGetPowerUsage", or "*"
	Code     int64
}

// Xid is one event. Serials increase; a process receives the events raised after it began to listen.
type Xid struct {
	Serial, Code int64
	Instance     int64 // GPU instance in which it happened; 0: the whole GPU
}

// GPU returns the GPU with the given UUID, or nil.
func (p *Profile) GPU(uuid string) *GPU {
	for i := range p.GPUs {
		if p.GPUs[i].UUID == uuid {
			return &p.GPUs[i]
		}
	}
	return nil
}

// RaiseXid adds an Xid event. If there are too many, it drops the oldest.
func (g *GPU) RaiseXid(code int64) { g.RaiseXidIn(0, code) }

// RaiseXidIn adds an Xid event of a GPU instance; 0 is the whole GPU.
func (g *GPU) RaiseXidIn(instance, code int64) {
	serial := int64(1)
	for _, x := range g.Xids {
		serial = max(serial, x.Serial+1)
	}
	g.Xids = append(g.Xids, Xid{serial, code, instance})
	if len(g.Xids) > maxXids {
		g.Xids = g.Xids[len(g.Xids)-maxXids:]
	}
}

// KernelLine returns the record of /dev/kmsg that a driver writes when it raises an Xid of the GPU: text follows the
// number, such as "NETIR_LINK_EVT Fatal XC0 i0 Link 08 (…)". An event of NVML has the number only.
func (g *GPU) KernelLine(seq, xid int, text string) string {
	at := strings.TrimSuffix(strings.TrimPrefix(strings.ToLower(g.PCI), "0000"), ".0")
	return fmt.Sprintf("4,%d,%d,-;NVRM: Xid (PCI:%s): %d, %s\n", seq, 1000*seq, at, xid, text)
}

// ClearFaults makes the GPU healthy again, as after a repair. Xids that were raised stay raised.
func (g *GPU) ClearFaults() {
	if g.FabricState > 0 {
		g.FabricState, g.FabricStatus = fabricCompleted, 0
	}
	g.NVLinksDown, g.FabricHealth, g.FabricWait = 0, 0, 0
	g.ClocksReasons, g.PCIeGenNow, g.PCIeWidthNow = 0, 0, 0
	action := min(g.RecoveryAction, 0) // a driver without this report stays without it
	g.Lost, g.Absent, g.ECCUncorrectable, g.ECCCorrected = 0, 0, 0, 0
	g.RemapCorrected, g.RemapUncorrectable, g.RemapPending, g.RemapFailure = 0, 0, 0, 0
	g.RecoveryAction, g.StuckMiB, g.Hang, g.Crash, g.Errors = action, 0, "", "", nil
}

// Load reads a profile file.
func Load(path string) (*Profile, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	p, err := Parse(b)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return p, nil
}

// Save writes the profile file atomically: a reader sees the old one or the new one.
func (p *Profile) Save(path string) error {
	b, err := p.Format()
	if err != nil {
		return err
	}
	return replace(path, b)
}

// Change loads the profile at path, calls change with it and saves it. This injects a fault into a running host.
// Changes by several processes are serialised.
func Change(path string, change func(*Profile) error) error {
	lock, err := os.OpenFile(path+".lock", os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	defer lock.Close()
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return fmt.Errorf("lock %s: %w", path, err)
	}
	p, err := Load(path)
	if err != nil {
		return err
	}
	if err := change(p); err != nil {
		return err
	}
	return p.Save(path)
}

// ResetEnergy sets the energy counters of the profile's GPUs back to zero, as a reload of the driver does.
func ResetEnergy(path string) error {
	if err := os.Remove(path + ".energy"); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

func replace(path string, b []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), ".profile-*")
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	err = errors.Join(err, f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}
