package probe

import (
	"fmt"
	"strings"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/musterhq/muster/agent/machine/gpu/wire"
	"github.com/musterhq/muster/internal/agentapi"
)

// noInstance is the id by which NVML says that an event or a process is not of a MIG device.
const noInstance = ^uint32(0)

// isSlice reports whether a UUID is that of a MIG device.
func isSlice(uuid string) bool { return strings.HasPrefix(uuid, "MIG-") }

// split reports whether a GPU is in MIG mode.
func (p *probe) split(d nvml.Device) bool {
	on, err := call(p, "nvmlDeviceGetMigMode", func() (bool, nvml.Return) {
		now, _, ret := d.GetMigMode()
		return now == nvml.DEVICE_MIG_ENABLE, ret
	})
	return err == nil && on
}

// each calls f for each MIG device of a GPU until f returns false. Indexes without a device are passed over.
func (p *probe) each(d nvml.Device, f func(slice nvml.Device, uuid string) bool) {
	if !p.split(d) {
		return
	}
	n, err := call(p, "nvmlDeviceGetMaxMigDeviceCount", d.GetMaxMigDeviceCount)
	if err != nil {
		return
	}
	for i := range n {
		slice, err := call(p, "nvmlDeviceGetMigDeviceHandleByIndex", func() (nvml.Device, nvml.Return) {
			return d.GetMigDeviceHandleByIndex(i)
		})
		if err != nil {
			continue
		}
		uuid, err := call(p, "nvmlDeviceGetUUID", slice.GetUUID)
		if err == nil && !f(slice, uuid) {
			return
		}
	}
}

// slices returns the UUIDs of a GPU's MIG devices, and how many others share a GPU instance: those see each other's
// memory errors and bandwidth, and cannot be recreated by themselves.
func (p *probe) slices(d nvml.Device) (uuids []string, shared int) {
	p.each(d, func(slice nvml.Device, uuid string) bool {
		a, err := call(p, "nvmlDeviceGetAttributes", slice.GetAttributes)
		if err == nil && a.GpuInstanceSliceCount == a.ComputeInstanceSliceCount {
			uuids = append(uuids, uuid)
		} else {
			shared++
		}
		return true
	})
	return uuids, shared
}

// findSlice returns the handle of a MIG device, looking first at the GPU that is at the PCI bus id.
func (p *probe) findSlice(uuid, pci string) (nvml.Device, *wire.Error) {
	var found nvml.Device
	in := func(d nvml.Device) bool {
		p.each(d, func(slice nvml.Device, there string) bool {
			if there == uuid {
				found = slice
			}
			return found == nil
		})
		return found != nil
	}
	if pci != "" {
		d, err := call(p, "nvmlDeviceGetHandleByPciBusId", func() (nvml.Device, nvml.Return) {
			return p.lib.DeviceGetHandleByPciBusId(pci)
		})
		if err == nil && in(d) {
			return found, nil
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
		if d, err := p.byIndex(i); err == nil && in(d) {
			return found, nil
		}
	}
	return nil, &wire.Error{Code: wire.CodeNotFound, Call: "nvmlDeviceGetMigDeviceHandleByIndex",
		Text: "no MIG device has this UUID"}
}

func (p *probe) parent(slice nvml.Device) (nvml.Device, *wire.Error) {
	return call(p, "nvmlDeviceGetDeviceHandleFromMigDeviceHandle", slice.GetDeviceHandleFromMigDeviceHandle)
}

// firstSlice is the index of the first slice of the first GPU: slices come after all GPUs.
const firstSlice, perGPU = 64, 16

// describeSlice returns the facts of a MIG device. What it has of its own is memory and a part of the processors; its
// place and its age are the GPU's. It has no NVLink.
func (p *probe) describeSlice(d nvml.Device) (wire.Description, *wire.Error) {
	parent, err := p.parent(d)
	if err != nil {
		return wire.Description{}, err
	}
	whole, err := p.describe(parent)
	if err != nil {
		return whole, err
	}
	uuid, err := call(p, "nvmlDeviceGetUUID", d.GetUUID)
	if err != nil {
		return whole, err
	}
	memory, err := p.memory(d)
	if err != nil {
		return whole, err
	}
	a, err := call(p, "nvmlDeviceGetAttributes", d.GetAttributes)
	if err != nil {
		return whole, err
	}
	model := fmt.Sprintf("%s MIG %dg.%dgb", shortModel(whole.Model), a.GpuInstanceSliceCount, (a.MemorySizeMB+1023)/1024)
	none := agentapi.Optional[int64]{NotSupported: true}
	out := wire.Description{GPU: agentapi.GPU{
		UUID: uuid, Vendor: agentapi.NVIDIA, Kind: agentapi.KindSlice, Parent: whole.UUID,
		AttachName: "nvidia.com/gpu=" + uuid, Runtimes: whole.Runtimes, PCIBus: whole.PCIBus, Minor: whole.Minor,
		Model:        model,
		Architecture: whole.Architecture, ComputeCap: whole.ComputeCap, VRAMMB: int64(memory.Total >> 20),
		PCIeGenMax: whole.PCIeGenMax, PCIeGenCurrent: whole.PCIeGenCurrent, PCIeWidthMax: whole.PCIeWidthMax,
		PCIeWidthCurrent: whole.PCIeWidthCurrent, NUMANode: whole.NUMANode, ECC: whole.ECC,
		Persistence: whole.Persistence, VBIOS: whole.VBIOS, Serial: whole.Serial,
		MIG:          agentapi.Optional[bool]{NotSupported: true},
		PowerLimitMW: none, PowerDefaultMW: none,
		ConfidentialCompute: whole.ConfidentialCompute,
	}}
	if out.Instance, err = p.instance(parent, d, uuid); err != nil {
		return out, err
	}
	out.Index = firstSlice + perGPU*whole.Index + out.Instance.ID
	return out, nil
}

// shortModel returns a GPU's name without its maker, its socket and its kind of memory: "A100 80GB" for "NVIDIA
// A100-SXM4-80GB".
func shortModel(name string) string {
	var words []string
	for _, w := range strings.FieldsFunc(name, func(r rune) bool { return r == ' ' || r == '-' }) {
		if w == "NVIDIA" || w == "PCIe" || strings.HasPrefix(w, "SXM") || strings.HasPrefix(w, "HBM") {
			continue
		}
		words = append(words, w)
	}
	return strings.Join(words, " ")
}

// instance returns the GPU instance and the compute instance that a MIG device is.
func (p *probe) instance(parent, d nvml.Device, uuid string) (*wire.Instance, *wire.Error) {
	in := &wire.Instance{UUID: uuid}
	var err *wire.Error
	if in.ID, err = call(p, "nvmlDeviceGetGpuInstanceId", d.GetGpuInstanceId); err != nil {
		return nil, err
	}
	if in.ComputeID, err = call(p, "nvmlDeviceGetComputeInstanceId", d.GetComputeInstanceId); err != nil {
		return nil, err
	}
	gi, err := p.gpuInstance(parent, in.ID)
	if err != nil {
		return nil, err
	}
	info, err := call(p, "nvmlGpuInstanceGetInfo", gi.GetInfo)
	if err != nil {
		return nil, err
	}
	ci, err := p.computeInstance(gi, in.ComputeID)
	if err != nil {
		return nil, err
	}
	compute, err := call(p, "nvmlComputeInstanceGetInfo", ci.GetInfo)
	if err != nil {
		return nil, err
	}
	in.Profile, in.Start, in.Size = info.ProfileId, info.Placement.Start, info.Placement.Size
	in.ComputeProfile = compute.ProfileId
	return in, nil
}

func (p *probe) gpuInstance(parent nvml.Device, id int) (nvml.GpuInstance, *wire.Error) {
	return call(p, "nvmlDeviceGetGpuInstanceById", func() (nvml.GpuInstance, nvml.Return) {
		return parent.GetGpuInstanceById(id)
	})
}

func (p *probe) computeInstance(gi nvml.GpuInstance, id int) (nvml.ComputeInstance, *wire.Error) {
	return call(p, "nvmlGpuInstanceGetComputeInstanceById", func() (nvml.ComputeInstance, nvml.Return) {
		return gi.GetComputeInstanceById(id)
	})
}

// remake destroys the MIG device like and makes one of the same profiles in the same place. What is already destroyed,
// by an agent that ended in the middle, is only made.
func (p *probe) remake(parent nvml.Device, like *wire.Instance) (*wire.Instance, *wire.Error) {
	if like == nil {
		return nil, &wire.Error{Call: wire.MethodRemake, Text: "remake what?"}
	}
	gi, err := p.gpuInstance(parent, like.ID)
	if err == nil {
		err = p.destroy(gi, like)
	} else if err.Code == wire.CodeNotFound {
		err = nil
	}
	if err != nil {
		return nil, err
	}
	place := nvml.GpuInstancePlacement{Start: like.Start, Size: like.Size}
	gi, err = call(p, "nvmlDeviceCreateGpuInstanceWithPlacement", func() (nvml.GpuInstance, nvml.Return) {
		return parent.CreateGpuInstanceWithPlacement(&nvml.GpuInstanceProfileInfo{Id: like.Profile}, &place)
	})
	if err != nil {
		return nil, err
	}
	_, err = call(p, "nvmlGpuInstanceCreateComputeInstance", func() (nvml.ComputeInstance, nvml.Return) {
		return gi.CreateComputeInstance(&nvml.ComputeInstanceProfileInfo{Id: like.ComputeProfile})
	})
	if err != nil {
		return nil, err
	}
	info, err := call(p, "nvmlGpuInstanceGetInfo", gi.GetInfo)
	if err != nil {
		return nil, err
	}
	return p.made(parent, int(info.Id))
}

// destroy destroys a GPU instance and the compute instance in it. An instance that is now another one, in another
// place, is left alone.
func (p *probe) destroy(gi nvml.GpuInstance, like *wire.Instance) *wire.Error {
	info, err := call(p, "nvmlGpuInstanceGetInfo", gi.GetInfo)
	if err != nil {
		return err
	}
	if info.ProfileId != like.Profile || info.Placement.Start != like.Start {
		return nil
	}
	ci, err := p.computeInstance(gi, like.ComputeID)
	switch {
	case err == nil:
		if err := done(p, "nvmlComputeInstanceDestroy", ci.Destroy); err != nil {
			return err
		}
	case err.Code != wire.CodeNotFound:
		return err
	}
	return done(p, "nvmlGpuInstanceDestroy", gi.Destroy)
}

// done makes an NVML call that returns nothing but its code.
func done(p *probe, symbol string, f func() nvml.Return) *wire.Error {
	_, err := call(p, symbol, func() (struct{}, nvml.Return) { return struct{}{}, f() })
	return err
}

// made returns the MIG device of a GPU instance.
func (p *probe) made(parent nvml.Device, id int) (*wire.Instance, *wire.Error) {
	err := &wire.Error{Code: wire.CodeNotFound, Call: "nvmlDeviceGetMigDeviceHandleByIndex",
		Text: "not there after it was made"}
	var out *wire.Instance
	p.each(parent, func(slice nvml.Device, uuid string) bool {
		if is, e := call(p, "nvmlDeviceGetGpuInstanceId", slice.GetGpuInstanceId); e == nil && is == id {
			out, err = p.instance(parent, slice, uuid)
			return false
		}
		return true
	})
	return out, err
}

// sampleSlice reads what a MIG device does now: NVML has its memory only. Power and temperature are the whole GPU's.
func (p *probe) sampleSlice(d nvml.Device) (wire.Sample, *wire.Error) {
	var s wire.Sample
	var err *wire.Error
	if s.GPU, err = call(p, "nvmlDeviceGetUUID", d.GetUUID); err != nil {
		return s, err
	}
	memory, err := p.memory(d)
	if err != nil {
		return s, err
	}
	used, total := int64(memory.Used), int64(memory.Total)
	s.MemUsed, s.MemTotal = &used, &total
	return s, nil
}
