package probe

import (
	"encoding/hex"
	"fmt"
	"math/bits"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/musterhq/muster/agent/machine/gpu/wire"
	"github.com/musterhq/muster/internal/agentapi"
)

func (p *probe) system() (wire.System, *wire.Error) {
	var s wire.System
	var err *wire.Error
	if s.Driver, err = call(p, "nvmlSystemGetDriverVersion", p.lib.SystemGetDriverVersion); err != nil {
		return s, err
	}
	s.NVML, _ = call(p, "nvmlSystemGetNVMLVersion", p.lib.SystemGetNVMLVersion)
	s.CUDA = p.cuda()
	s.Simulated, s.Library = p.symbol(fakeSymbol), loadedLibrary()
	n, err := call(p, "nvmlDeviceGetCount", p.lib.DeviceGetCount)
	if err != nil {
		return s, err
	}
	s.Devices = make([]wire.Device, n)
	for i := range s.Devices {
		s.Devices[i] = p.identify(i)
	}
	return s, nil
}

// cuda returns the newest version of CUDA that the driver runs; "" if it does not report that.
func (p *probe) cuda() string {
	cuda, err := call(p, "nvmlSystemGetCudaDriverVersion_v2", p.lib.SystemGetCudaDriverVersion_v2)
	if err != nil {
		cuda, err = call(p, "nvmlSystemGetCudaDriverVersion", p.lib.SystemGetCudaDriverVersion)
	}
	if err != nil {
		return ""
	}
	return fmt.Sprintf("%d.%d", cuda/1000, cuda%1000/10)
}

// loadedLibrary returns the file of the NVML library in this process; "" if it is unknown.
func loadedLibrary() string {
	b, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(b)) {
		if at := strings.IndexByte(line, '/'); at >= 0 && strings.Contains(line[at:], "/libnvidia-ml.so") {
			return strings.TrimSuffix(strings.TrimSpace(line[at:]), " (deleted)")
		}
	}
	return ""
}

func (p *probe) identify(i int) wire.Device {
	out := wire.Device{Index: i}
	d, err := p.byIndex(i)
	if err == nil {
		out.UUID, err = call(p, "nvmlDeviceGetUUID", d.GetUUID)
	}
	if err == nil {
		p.keepHandle(out.UUID, d)
	}
	if err == nil {
		out.PCI, err = p.pci(d)
	}
	if err == nil {
		out.Slices, out.Shared = p.slices(d)
	}
	out.Error = err
	return out
}

func (p *probe) byIndex(i int) (nvml.Device, *wire.Error) {
	return call(p, "nvmlDeviceGetHandleByIndex", func() (nvml.Device,
		nvml.Return) {
		return p.lib.DeviceGetHandleByIndex(i)
	})
}

func (p *probe) pci(d nvml.Device) (string, *wire.Error) {
	info, err := call(p, "nvmlDeviceGetPciInfo", d.GetPciInfo)
	if err != nil {
		return "", err
	}
	return busID(info), nil
}

// busID returns the form 00000000:17:00.0, made from the numbers: the oldest form of the call leaves the long text
// empty.
func busID(pci nvml.PciInfo) string {
	return fmt.Sprintf("%08X:%02X:%02X.0", pci.Domain, pci.Bus, pci.Device)
}

// describe returns the facts of a GPU that do not change from minute to minute.
func (p *probe) describe(d nvml.Device) (wire.Description, *wire.Error) {
	var g wire.Description
	var err *wire.Error
	if g.UUID, err = call(p, "nvmlDeviceGetUUID", d.GetUUID); err != nil {
		return g, err
	}
	if g.Index, err = call(p, "nvmlDeviceGetIndex", d.GetIndex); err != nil {
		return g, err
	}
	if g.PCIBus, err = p.pci(d); err != nil {
		return g, err
	}
	if g.Model, err = call(p, "nvmlDeviceGetName", d.GetName); err != nil {
		return g, err
	}
	memory, err := p.memory(d)
	if err != nil && !unsupported(err) { // without memory of its own, the agent fills in the amount
		return g, err
	}
	g.VRAMMB = int64(memory.Total >> 20)
	_, node := call(p, "nvmlDeviceGetNumaNodeId", d.GetNumaNodeId)
	g.Coherent = err != nil || node == nil || coherentModel.MatchString(g.Model)
	arch, err := call(p, "nvmlDeviceGetArchitecture", d.GetArchitecture)
	if dead(err) {
		return g, err
	}
	g.Architecture = architecture(arch, err)
	type capability struct{ major, minor int }
	if cc, err := call(p, "nvmlDeviceGetCudaComputeCapability", func() (capability, nvml.Return) {
		major, minor, ret := d.GetCudaComputeCapability()
		return capability{major, minor}, ret
	}); err == nil {
		g.ComputeCap = fmt.Sprintf("%d.%d", cc.major, cc.minor)
	}
	g.PCIeGenMax = optional(call(p, "nvmlDeviceGetMaxPcieLinkGeneration", d.GetMaxPcieLinkGeneration))
	g.PCIeGenCurrent = optional(call(p, "nvmlDeviceGetCurrPcieLinkGeneration", d.GetCurrPcieLinkGeneration))
	g.PCIeWidthMax = optional(call(p, "nvmlDeviceGetMaxPcieLinkWidth", d.GetMaxPcieLinkWidth))
	g.PCIeWidthCurrent = optional(call(p, "nvmlDeviceGetCurrPcieLinkWidth", d.GetCurrPcieLinkWidth))
	g.Minor = optional(call(p, "nvmlDeviceGetMinorNumber", d.GetMinorNumber))
	g.NUMANode = optional(p.nearNode(d))
	g.VBIOS = optional(call(p, "nvmlDeviceGetVbiosVersion", d.GetVbiosVersion))
	g.Serial = optional(call(p, "nvmlDeviceGetSerial", d.GetSerial))
	g.Persistence = optional(enabled(call(p, "nvmlDeviceGetPersistenceMode", d.GetPersistenceMode)))
	g.Display, _ = enabled(call(p, "nvmlDeviceGetDisplayActive", d.GetDisplayActive))
	g.ECC = optional(enabled(call(p, "nvmlDeviceGetEccMode", func() (nvml.EnableState, nvml.Return) {
		now, _, ret := d.GetEccMode()
		return now, ret
	})))
	g.MIG = optional(call(p, "nvmlDeviceGetMigMode", func() (bool, nvml.Return) {
		now, _, ret := d.GetMigMode()
		return now != 0, ret
	}))
	g.PowerLimitMW = optional(call(p, "nvmlDeviceGetPowerManagementLimit", func() (int64, nvml.Return) {
		mw, ret := d.GetPowerManagementLimit()
		return int64(mw), ret
	}))
	g.PowerDefaultMW = optional(call(p, "nvmlDeviceGetPowerManagementDefaultLimit", func() (int64, nvml.Return) {
		mw, ret := d.GetPowerManagementDefaultLimit()
		return int64(mw), ret
	}))
	g.ConfidentialCompute = optional(call(p, "nvmlSystemGetConfComputeState", func() (bool, nvml.Return) {
		state, ret := p.lib.SystemGetConfComputeState()
		return state.CcFeature != 0, ret
	}))
	if g.ConfidentialCompute.Or(false) {
		g.ConfidentialReady = optional(call(p, "nvmlSystemGetConfComputeGpusReadyState", func() (bool, nvml.Return) {
			ready, ret := p.lib.SystemGetConfComputeGpusReadyState()
			return ready != 0, ret
		}))
	}
	g.VGPU = p.vgpu(d)
	g.NVLinks = p.links(d)
	g.Links = p.ends(d, g.NVLinks)
	g.Vendor, g.Kind, g.AttachName = agentapi.NVIDIA, agentapi.KindGPU, "nvidia.com/gpu="+g.UUID
	if cuda := p.cuda(); cuda != "" {
		g.Runtimes = map[string]string{"cuda": cuda}
	}
	g.Fabric = p.fabric(d)
	if g.Fabric != nil && g.Fabric.State == wire.FabricCompleted {
		g.FabricCluster, g.FabricClique = g.Fabric.Cluster, g.Fabric.Clique
	}
	return g, nil
}

// coherentModel are the models whose memory the processor shares, also where the driver does not make it a NUMA node.
var coherentModel = regexp.MustCompile(`\bG[BH]\d`)

// nearNode returns the NUMA node of the processors that are near a GPU. nvmlDeviceGetNumaNodeId is something else: the
// node that consists of the GPU's own memory, if there is one.
func (p *probe) nearNode(d nvml.Device) (int, *wire.Error) {
	const nodes = 64 // go-nvml makes a word of 64 for every 8 of them
	return call(p, "nvmlDeviceGetMemoryAffinity", func() (int, nvml.Return) {
		set, ret := d.GetMemoryAffinity(nodes, nvml.AFFINITY_SCOPE_NODE)
		if ret != nvml.SUCCESS {
			return 0, ret
		}
		for i, word := range set {
			if word != 0 {
				return 64*i + bits.TrailingZeros64(uint64(word)), nvml.SUCCESS
			}
		}
		return 0, nvml.ERROR_NOT_SUPPORTED
	})
}

// fabric returns a GPU's registration with its system's NVSwitches; nil if there are none to register with, or the
// driver does not report it (NVML does for Hopper and newer).
func (p *probe) fabric(d nvml.Device) *wire.Fabric {
	info, err := call(p, "nvmlDeviceGetGpuFabricInfoV", func() (nvml.GpuFabricInfo_v2, nvml.Return) {
		return d.GetGpuFabricInfoV().V2()
	})
	if err != nil || int(info.State) == wire.FabricNotSupported {
		return nil
	}
	f := &wire.Fabric{State: int(info.State), Health: info.HealthMask, Clique: info.CliqueId}
	if info.ClusterUuid != [16]uint8{} {
		f.Cluster = hex.EncodeToString(info.ClusterUuid[:])
	}
	if f.State == wire.FabricCompleted && info.Status != uint32(nvml.SUCCESS) {
		f.Status = &wire.Error{
			Code: int(info.Status),
			Call: "nvmlDeviceGetGpuFabricInfoV",
			Text: p.text(nvml.Return(info.Status)),
		}
	}
	return f
}

func enabled(state nvml.EnableState, err *wire.Error) (bool, *wire.Error) {
	return state == nvml.FEATURE_ENABLED, err
}

func architecture(arch nvml.DeviceArchitecture, err *wire.Error) string {
	names := map[nvml.DeviceArchitecture]string{
		nvml.DEVICE_ARCH_KEPLER: "Kepler", nvml.DEVICE_ARCH_MAXWELL: "Maxwell", nvml.DEVICE_ARCH_PASCAL: "Pascal",
		nvml.DEVICE_ARCH_VOLTA: "Volta", nvml.DEVICE_ARCH_TURING: "Turing", nvml.DEVICE_ARCH_AMPERE: "Ampere",
		nvml.DEVICE_ARCH_ADA: "Ada", nvml.DEVICE_ARCH_HOPPER: "Hopper", nvml.DEVICE_ARCH_BLACKWELL: "Blackwell",
		nvml.DEVICE_ARCH_RUBIN: "Rubin",
	}
	if err != nil {
		return ""
	}
	if name, ok := names[arch]; ok {
		return name
	}
	return fmt.Sprintf("architecture %d", arch)
}

// links returns the NVLinks of a GPU. A device may not know every number: one in the middle can be fused off.
func (p *probe) links(d nvml.Device) []agentapi.NVLink {
	var links []agentapi.NVLink
	for i := range nvml.NVLINK_MAX_LINKS {
		state, err := enabled(call(p, "nvmlDeviceGetNvLinkState",
			func() (nvml.EnableState, nvml.Return) { return d.GetNvLinkState(i) }))
		if dead(err) {
			return links
		}
		if err != nil {
			continue
		}
		link := agentapi.NVLink{Link: i, Active: state}
		version, err := call(p, "nvmlDeviceGetNvLinkVersion", func() (uint32, nvml.Return) { return d.GetNvLinkVersion(i) })
		if err == nil {
			link.Version = int(version)
			link.Gbps, _ = agentapi.NVLinkGbps(link.Version)
		}
		remote, err := call(p, "nvmlDeviceGetNvLinkRemotePciInfo",
			func() (nvml.PciInfo, nvml.Return) { return d.GetNvLinkRemotePciInfo(i) })
		if err == nil && state {
			link.Remote = busID(remote)
		}
		links = append(links, link)
	}
	return links
}

// ends returns the active NVLinks of a GPU by what is at their other end, in the order of the links. If the speed of a
// link to an end is not known, the speed to that end is not either.
func (p *probe) ends(d nvml.Device, links []agentapi.NVLink) []agentapi.Link {
	var out []agentapi.Link
	unknown := map[string]bool{}
	for _, l := range links {
		if !l.Active {
			continue
		}
		peer := l.Remote
		if p.switched(d, l.Link) {
			peer = "switch"
		}
		unknown[peer] = unknown[peer] || l.Gbps == 0
		i := slices.IndexFunc(out, func(e agentapi.Link) bool { return e.Peer == peer })
		if i < 0 {
			out = append(out, agentapi.Link{Peer: peer, Type: agentapi.LinkNVLink})
			i = len(out) - 1
		}
		out[i].Gbps += l.Gbps
	}
	for i := range out {
		if unknown[out[i].Peer] {
			out[i].Gbps = 0
		}
	}
	return out
}

// switched reports whether a link leads to an NVSwitch.
func (p *probe) switched(d nvml.Device, link int) bool {
	kind, err := call(p, "nvmlDeviceGetNvLinkRemoteDeviceType", func() (nvml.IntNvLinkDeviceType, nvml.Return) {
		return d.GetNvLinkRemoteDeviceType(link)
	})
	return err == nil && kind == nvml.NVLINK_DEVICE_TYPE_SWITCH
}
