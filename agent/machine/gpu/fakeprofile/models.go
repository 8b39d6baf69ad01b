package fakeprofile

import (
	"crypto/sha256"
	"fmt"
	"slices"
	"strings"
)

// Values of NVML's enums that the models use. They are not version numbers; a test compares them with nvml.h.
const (
	nvlink2         = 2 // NVML_NVLINK_VERSION_2_0, V100
	nvlink3         = 4 // NVML_NVLINK_VERSION_3_0
	nvlink3A100     = 5 // NVML_NVLINK_VERSION_3_1, the answer of A100s
	nvlink4         = 6 // NVML_NVLINK_VERSION_4_0
	nvlink5         = 7 // NVML_NVLINK_VERSION_5_0
	fabricCompleted = 3 // NVML_GPU_FABRIC_STATE_COMPLETED

	volta, ampere, ada, hopper, blackwell = 5, 7, 8, 9, 10 // NVML_DEVICE_ARCH_…
)

// untold is the value of modes that a device does not have, or a driver does not report: NVML answers NOT_SUPPORTED.
const untold = -1

// models are the devices that can be simulated, with what NVML reports of the real ones. The profiles of NVIDIA's
// own mock (k8s-test-infra, pkg/gpu/mocknvml/configs) agree with these but for the memory, which is the nominal one
// there and here what nvidia-smi shows of a card (81559 MiB of an 80 GB H100; an L40S's without what ECC takes), and
// for the B200: there it has PCIe 6 and its power limit can be raised to 1200 W. NVML reports the most that the GPU
// and the system can do, which with today's processors is PCIe 5.
var models = map[string]GPU{
	"NVIDIA H100 80GB HBM3": {Arch: hopper, CCMajor: 9, MemoryMiB: 81559, ReservedMiB: 551, PCIeGen: 5, PCIeWidth: 16,
		P2P: 1, NVLinks: 18, NVLinkVersion: nvlink4, NVLinkRemote: "switch", FabricState: fabricCompleted,
		ECC: 1, MIG: 0, Persistence: 1, Confidential: 0,
		ClockSMMHz: 1980, ClockMemMHz: 2619,
		PowerIdleMW: 70_000, PowerLimitMW: 700_000, TempIdle: 29, TempBusy: 64, VBIOS: "96.00.74.00.01"},
	"NVIDIA H200": {Arch: hopper, CCMajor: 9, MemoryMiB: 143771, ReservedMiB: 615, PCIeGen: 5, PCIeWidth: 16, P2P: 1,
		NVLinks: 18, NVLinkVersion: nvlink4, NVLinkRemote: "switch", FabricState: fabricCompleted,
		ECC: 1, MIG: 0, Persistence: 1, Confidential: 0,
		ClockSMMHz: 1980, ClockMemMHz: 3201,
		PowerIdleMW: 79_000, PowerLimitMW: 700_000, TempIdle: 34, TempBusy: 65, VBIOS: "96.00.A5.00.1A"},
	"NVIDIA B200": {Arch: blackwell, CCMajor: 10, MemoryMiB: 183359, ReservedMiB: 700, PCIeGen: 5, PCIeWidth: 16, P2P: 1,
		NVLinks: 18, NVLinkVersion: nvlink5, NVLinkRemote: "switch", FabricState: fabricCompleted,
		ECC: 1, MIG: 0, Persistence: 1, Confidential: 0,
		ClockSMMHz: 1965, ClockMemMHz: 3996,
		PowerIdleMW: 140_000, PowerLimitMW: 1_000_000, TempIdle: 30, TempBusy: 62, VBIOS: "97.00.88.00.0F"},
	// The memory of a GH200's GPU is a NUMA node of its own, in addition to those of its processors.
	"NVIDIA GH200 480GB": {Arch: hopper, CCMajor: 9, MemoryMiB: 97871, ReservedMiB: 614, PCIeGen: 5, PCIeWidth: 16,
		MemoryNode: 1, ECC: 1, MIG: 0, Persistence: 1, Confidential: 0,
		PowerIdleMW: 80_000, PowerLimitMW: 900_000, TempIdle: 28, TempBusy: 60, VBIOS: "96.00.84.00.02"},
	"NVIDIA GB10": {Arch: blackwell, CCMajor: 12, CCMinor: 1, MemoryMiB: 1, PCIeGen: 5, PCIeWidth: 16, Unified: 1,
		ECC: untold, MIG: untold, Persistence: 1, Confidential: untold, RecoveryAction: 0,
		PowerIdleMW: 4_000, PowerLimitMW: 100_000, TempIdle: 35, TempBusy: 70, VBIOS: "9A.0B.18.00.00"},
	"NVIDIA A100-SXM4-80GB": {Arch: ampere, CCMajor: 8, MemoryMiB: 81920, ReservedMiB: 634, PCIeGen: 4, PCIeWidth: 16,
		P2P: 1, NVLinks: 12, NVLinkVersion: nvlink3A100, NVLinkRemote: "switch",
		ECC: 1, MIG: 0, Persistence: 1, Confidential: untold,
		ClockSMMHz: 1410, ClockMemMHz: 1593,
		PowerIdleMW: 62_000, PowerLimitMW: 400_000, TempIdle: 30, TempBusy: 62, VBIOS: "92.00.45.00.03"},
	"Tesla V100-SXM2-32GB": {Arch: volta, CCMajor: 7, MemoryMiB: 32768, ReservedMiB: 269, PCIeGen: 3, PCIeWidth: 16,
		P2P: 1, NVLinks: 6, NVLinkVersion: nvlink2, NVLinkRemote: "switch", // a DGX-2
		ECC: 1, MIG: untold, Persistence: 1, Confidential: untold,
		PowerIdleMW: 42_000, PowerLimitMW: 350_000, TempIdle: 33, TempBusy: 66, VBIOS: "88.00.48.00.02"},
	"NVIDIA L40S": {Arch: ada, CCMajor: 8, CCMinor: 9, MemoryMiB: 46068, ReservedMiB: 618, PCIeGen: 4, PCIeWidth: 16,
		P2P: 1, ECC: 1, MIG: untold, Persistence: 1, Confidential: untold,
		ClockSMMHz: 2520, ClockMemMHz: 9001,
		PowerIdleMW: 34_000, PowerLimitMW: 350_000, TempIdle: 31, TempBusy: 68, VBIOS: "95.02.66.00.02"},
	// GeForce cards have no serial number, no MIG, no row remapping and no recovery action; ECC of a 4090 can be turned
	// on.
	"NVIDIA GeForce RTX 4090": {Arch: ada, CCMajor: 8, CCMinor: 9, MemoryMiB: 24564, ReservedMiB: 346, PCIeGen: 4,
		PCIeWidth: 16, ECC: 0, MIG: untold, Persistence: 0, Confidential: untold, RecoveryAction: untold,
		ClockSMMHz: 2520, ClockMemMHz: 10501,
		PowerIdleMW: 21_000, PowerLimitMW: 450_000, TempIdle: 34, TempBusy: 71, VBIOS: "95.02.3C.00.8C"},
	"NVIDIA GeForce RTX 3090": {Arch: ampere, CCMajor: 8, CCMinor: 6, MemoryMiB: 24576, ReservedMiB: 310, PCIeGen: 4,
		PCIeWidth: 16, ECC: untold, MIG: untold, Persistence: 0, Confidential: untold, RecoveryAction: untold,
		PowerIdleMW: 24_000, PowerLimitMW: 350_000, TempIdle: 36, TempBusy: 74, VBIOS: "94.02.42.00.B4"},
}

// Models returns the names that Host and Add accept, sorted.
func Models() []string {
	names := make([]string, 0, len(models))
	for name := range models {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// Host returns a profile of count GPUs of a known model ("NVIDIA H100 80GB HBM3", "NVIDIA GeForce RTX 4090", …). The
// UUIDs depend on seed alone: the same seed always gives the same GPUs, different seeds give different ones.
func Host(model string, count int, seed string) (*Profile, error) {
	p := &Profile{CUDA: 12040, ClockMS: -1, LostHides: 1, Version: "550.90.07", NVML: "12.550.90.07"}
	return p, p.Add(model, count, seed)
}

// Add appends count GPUs of a known model; a host may have several models.
func (p *Profile) Add(model string, count int, seed string) error {
	m, ok := models[model]
	switch {
	case !ok:
		return fmt.Errorf("no simulated GPU is called %q; there are: %s", model, strings.Join(Models(), ", "))
	case count < 1 || len(p.GPUs)+count > MaxGPUs:
		return fmt.Errorf("a simulated host has 1 to %d GPUs", MaxGPUs)
	}
	for range count {
		i := len(p.GPUs)
		g := m
		g.Name = model
		g.Minor, g.MIGPending = -1, -1
		if g.MemoryNode == 0 {
			g.MemoryNode = -1
		}
		sum := sha256.Sum256(fmt.Appendf(nil, "muster-fake-gpu|%s|%d", seed, i))
		// NVML's UUIDs have the form of version 4.
		sum[6], sum[8] = sum[6]&0x0f|0x40, sum[8]&0x3f|0x80
		g.UUID = fmt.Sprintf("GPU-%x-%x-%x-%x-%x", sum[0:4], sum[4:6], sum[6:8], sum[8:10], sum[10:16])
		if g.ECC == 1 {
			g.Serial = fmt.Sprintf("16%011d", int64(sum[16])<<24|int64(sum[17])<<16|int64(sum[18])<<8|int64(sum[19]))
		}
		g.PCI = fmt.Sprintf("00000000:%02X:00.0", 0x17+0x11*i%0xe0)
		if g.NVLinks > 0 { // two sockets of four; two GPUs behind each PCIe switch, each pair on its own root port
			g.NUMA, g.Root, g.PCIeSwitch = int64(i/4), int64(i/2), int64(i/2+1)
		}
		p.GPUs = append(p.GPUs, g)
	}
	return p.check()
}
