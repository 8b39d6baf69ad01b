package probe

import (
	"encoding/binary"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/musterhq/muster/agent/machine/gpu/wire"
)

// sample reads what a GPU does now. Values that it does not report stay nil; a GPU that answers nothing is an error.
func (p *probe) sample(d nvml.Device) (wire.Sample, *wire.Error) {
	var s wire.Sample
	var err *wire.Error
	if s.GPU, err = call(p, "nvmlDeviceGetUUID", d.GetUUID); err != nil {
		return s, err
	}
	memory, err := p.memory(d)
	switch {
	case err == nil:
		used, total := int64(memory.Used), int64(memory.Total)
		s.MemUsed, s.MemTotal = &used, &total
	case !unsupported(err):
		return s, err
	}
	if util, err := call(p, "nvmlDeviceGetUtilizationRates", d.GetUtilizationRates); err == nil {
		percent := int(util.Gpu)
		s.Util = &percent
	}
	s.PowerMW, err = number[int64](call(p, "nvmlDeviceGetPowerUsage", d.GetPowerUsage))
	if dead(err) {
		return s, err
	}
	s.EnergyMJ, err = number[int64](call(p, "nvmlDeviceGetTotalEnergyConsumption", d.GetTotalEnergyConsumption))
	if dead(err) {
		return s, err
	}
	s.TempC, _ = number[int](call(p, "nvmlDeviceGetTemperature", func() (uint32, nvml.Return) {
		return d.GetTemperature(nvml.TEMPERATURE_GPU)
	}))
	p.speed(d, &s)
	return s, nil
}

// speed reads what decides how fast a GPU is now: its clocks, what holds them down, and its links.
func (p *probe) speed(d nvml.Device, s *wire.Sample) {
	reasons, err := call(p, "nvmlDeviceGetCurrentClocksEventReasons", d.GetCurrentClocksEventReasons)
	if err != nil && err.Code == wire.CodeFunctionNotFound { // the name before R535
		reasons, err = call(p, "nvmlDeviceGetCurrentClocksThrottleReasons", d.GetCurrentClocksThrottleReasons)
	}
	if err == nil {
		s.Clocks = wire.ClocksReasons(reasons)
	}
	s.SMMHz, _ = number[int](call(p, "nvmlDeviceGetClockInfo", func() (uint32, nvml.Return) {
		return d.GetClockInfo(nvml.CLOCK_SM)
	}))
	s.MemMHz, _ = number[int](call(p, "nvmlDeviceGetClockInfo", func() (uint32, nvml.Return) {
		return d.GetClockInfo(nvml.CLOCK_MEM)
	}))
	s.PCIeGen, _ = number[int](call(p, "nvmlDeviceGetCurrPcieLinkGeneration", d.GetCurrPcieLinkGeneration))
	s.PCIeWidth, _ = number[int](call(p, "nvmlDeviceGetCurrPcieLinkWidth", d.GetCurrPcieLinkWidth))
	s.PCIeGenMax, _ = number[int](call(p, "nvmlDeviceGetMaxPcieLinkGeneration", d.GetMaxPcieLinkGeneration))
	s.PCIeWidthMax, _ = number[int](call(p, "nvmlDeviceGetMaxPcieLinkWidth", d.GetMaxPcieLinkWidth))
	s.PCIeReplays, _ = number[int64](call(p, "nvmlDeviceGetPcieReplayCounter", d.GetPcieReplayCounter))
	s.NVLinkErrors = p.nvlinkErrors(d)
	s.Fan = p.fan(d)
}

// fan returns the speed of a GPU's fastest fan in percent; nil if it has none.
func (p *probe) fan(d nvml.Device) (fastest *int) {
	fans, err := call(p, "nvmlDeviceGetNumFans", d.GetNumFans)
	if err != nil {
		return nil
	}
	for i := range min(fans, maxFans) {
		speed, err := number[int](call(p, "nvmlDeviceGetFanSpeed_v2",
			func() (uint32, nvml.Return) { return d.GetFanSpeed_v2(i) }))
		if err == nil && (fastest == nil || *speed > *fastest) {
			fastest = speed
		}
	}
	return fastest
}

const maxFans = 16

// nvlinkErrors returns the errors of all NVLinks since the driver was loaded, or nil if the GPU counts none of them.
func (p *probe) nvlinkErrors(d nvml.Device) *int64 {
	values := []nvml.FieldValue{
		{FieldId: nvml.FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL}, {FieldId: nvml.FI_DEV_NVLINK_CRC_DATA_ERROR_COUNT_TOTAL},
		{FieldId: nvml.FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL}, {FieldId: nvml.FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL},
	}
	_, err := call(p, "nvmlDeviceGetFieldValues", func() ([]nvml.FieldValue, nvml.Return) {
		return values, d.GetFieldValues(values)
	})
	if err != nil {
		return nil
	}
	var sum int64
	counted := false
	for _, v := range values {
		if nvml.Return(v.NvmlReturn) != nvml.SUCCESS {
			continue
		}
		counted = true
		if nvml.ValueType(v.ValueType) == nvml.VALUE_TYPE_UNSIGNED_INT {
			sum += int64(binary.NativeEndian.Uint32(v.Value[:4]))
		} else {
			sum += int64(binary.NativeEndian.Uint64(v.Value[:8]))
		}
	}
	if !counted {
		return nil
	}
	return &sum
}

// memory returns the memory in bytes; used excludes what the driver reserves, if the driver reports that separately.
func (p *probe) memory(d nvml.Device) (nvml.Memory, *wire.Error) {
	m, err := call(p, "nvmlDeviceGetMemoryInfo_v2", d.GetMemoryInfo_v2)
	if err == nil {
		return nvml.Memory{Total: m.Total, Free: m.Free, Used: m.Used}, nil
	}
	if !unsupported(err) {
		return nvml.Memory{}, err
	}
	return call(p, "nvmlDeviceGetMemoryInfo", d.GetMemoryInfo)
}

// condition returns a GPU's defects. An error means that the GPU is gone.
func (p *probe) condition(d nvml.Device) (wire.Condition, *wire.Error) {
	var c wire.Condition
	note := func(err *wire.Error) {
		if c.Odd == nil && odd(err) {
			c.Odd = err
		}
	}
	extra := func(symbol string, err *wire.Error) {
		switch {
		case err == nil:
			c.Answered = append(c.Answered, symbol)
		case err.Code == wire.CodeUnknown:
			c.Unknown = append(c.Unknown, *err)
		default:
			note(err)
		}
	}
	if _, err := p.memory(d); err != nil { // the simplest call: whether the GPU answers at all
		if dead(err) {
			return c, err
		}
		note(err)
	}
	ecc, err := call(p, "nvmlDeviceGetTotalEccErrors", func() (uint64, nvml.Return) {
		return d.GetTotalEccErrors(nvml.MEMORY_ERROR_TYPE_UNCORRECTED, nvml.VOLATILE_ECC)
	})
	extra("nvmlDeviceGetTotalEccErrors", err)
	c.ECCUncorrectable, _ = number[uint64](ecc, err)
	type remap struct{ pending, failure bool }
	rows, err := call(p, "nvmlDeviceGetRemappedRows", func() (remap, nvml.Return) {
		_, _, pending, failure, ret := d.GetRemappedRows()
		return remap{pending, failure}, ret
	})
	extra("nvmlDeviceGetRemappedRows", err)
	c.RemapPending, c.RemapFailure = rows.pending, rows.failure
	action, err := p.fieldValue(d, nvml.FI_DEV_GET_GPU_RECOVERY_ACTION)
	extra("nvmlDeviceGetFieldValues", err)
	if err == nil {
		recovery := int(action)
		c.RecoveryAction = &recovery
	}
	_, err = call(p, "nvmlDeviceGetPowerUsage", d.GetPowerUsage)
	extra("nvmlDeviceGetPowerUsage", err)
	if dead(c.Odd) {
		return c, c.Odd
	}
	c.NVLinksUp = p.linksUp(d)
	if c.Fabric = p.fabric(d); c.Fabric != nil && c.Fabric.State == wire.FabricCompleted {
		c.FabricHealth = wire.FabricHealth(c.Fabric.Health)
	}
	return c, nil
}

// linksUp returns how many of a GPU's NVLinks work; nil if it has none.
func (p *probe) linksUp(d nvml.Device) *int {
	up, known := 0, false
	for i := range nvml.NVLINK_MAX_LINKS {
		active, err := enabled(call(p, "nvmlDeviceGetNvLinkState",
			func() (nvml.EnableState, nvml.Return) { return d.GetNvLinkState(i) }))
		if err != nil {
			if i == 0 && unsupported(err) || dead(err) {
				return nil
			}
			continue
		}
		known = true
		if active {
			up++
		}
	}
	if !known {
		return nil
	}
	return &up
}

func (p *probe) fieldValue(d nvml.Device, id uint32) (uint32, *wire.Error) {
	return call(p, "nvmlDeviceGetFieldValues", func() (uint32, nvml.Return) {
		values := []nvml.FieldValue{{FieldId: id}}
		if ret := d.GetFieldValues(values); ret != nvml.SUCCESS {
			return 0, ret
		}
		v := values[0]
		if ret := nvml.Return(v.NvmlReturn); ret != nvml.SUCCESS {
			return 0, ret
		}
		return binary.NativeEndian.Uint32(v.Value[:4]), nvml.SUCCESS
	})
}

// use returns the processes that hold a context on a GPU, compute and graphics, and how much of its memory is in use.
func (p *probe) use(d nvml.Device) (wire.Use, *wire.Error) {
	memory, err := p.memory(d)
	if err != nil && !unsupported(err) {
		return wire.Use{}, err
	}
	u := wire.Use{MemUsed: int64(memory.Used), Shared: err != nil, Processes: []wire.Process{}}
	if _, err := call(p, "nvmlDeviceGetNumaNodeId", d.GetNumaNodeId); err == nil {
		u.Shared = true // the kernel may put any data into the node
	}
	seen := map[uint32]bool{}
	add := func(list []nvml.ProcessInfo, err *wire.Error) *wire.Error {
		if err != nil && !unsupported(err) {
			return err
		}
		for _, info := range list {
			if seen[info.Pid] {
				continue
			}
			seen[info.Pid] = true
			process := wire.Process{PID: int(info.Pid)}
			if info.UsedGpuMemory != ^uint64(0) { // NVML_VALUE_NOT_AVAILABLE
				process.MemUsed = int64(info.UsedGpuMemory)
			}
			u.Processes = append(u.Processes, process)
		}
		return nil
	}
	if err := add(call(p, "nvmlDeviceGetComputeRunningProcesses", d.GetComputeRunningProcesses)); err != nil {
		return u, err
	}
	return u, add(call(p, "nvmlDeviceGetGraphicsRunningProcesses", d.GetGraphicsRunningProcesses))
}
