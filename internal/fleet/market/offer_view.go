package market

import (
	"fmt"
	"strings"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/money"
)

// PerSecond converts an hourly price to a price per second, rounded down to a nano-unit, for display.
func PerSecond(rate money.Micro) money.Nano { return money.CostOf(rate, 1000) }

func (l *lot) offerView() client.Offer {
	f, h := &l.class.facts, l.entry.host
	o := client.Offer{
		ID:              l.offer.ID,
		HostID:          h.ID,
		HostName:        h.Name,
		GPUModel:        f.model,
		GPUArch:         f.arch,
		GPUVendor:       f.vendor,
		Kind:            f.kind,
		GPUsFree:        f.free,
		GPUsTotal:       f.total,
		VRAMGB:          f.vramGB,
		ComputeCap:      f.computeCap,
		CUDAMax:         f.cudaMax,
		ROCmMax:         f.rocmMax,
		Driver:          f.driver,
		Display:         f.display,
		NVLink:          f.nvlink,
		NVLinkGbps:      f.nvlinkGbps,
		PCIeGen:         f.pcieGen,
		PCIeMeasured:    f.pcieMeasured,
		CPUCores:        f.cpuCores,
		RAMGB:           gibibytes(f.ramMB),
		DiskGB:          f.diskFreeGB,
		DiskLimited:     f.diskLimited,
		ScratchGB:       f.scratchFreeGB,
		Runtimes:        strings.Fields(f.runtimes),
		Shared:          strings.Fields(f.shared),
		Region:          f.region,
		BusbwGbps:       f.busbwGbps.pointer(),
		RDMAGbps:        f.rdmaGbps,
		BusbwRDMA:       f.busbwRDMA.pointer(),
		NetUpMbps:       f.netUpMbps.pointer(),
		NetDownMbps:     f.netDownMbps.pointer(),
		Reliability:     f.reliability.pointer(),
		Verified:        f.verified,
		PricePerGPUHour: f.price,
		PricePerGPUSec:  PerSecond(f.price),
		MinGPUs:         f.minGPUs,
		Simulated:       f.simulated,
		MultiNode:       f.multiNode,
	}
	if f.degraded != "" {
		why := fmt.Sprintf("%d of %d GPUs: %s", f.degradedGPUs, f.total, f.degraded)
		o.Degraded = &why
	}
	if isolation := f.rdmaIsolation(); isolation != "" {
		o.RDMAIsolation = &isolation
	}
	if f.fabricName != "" {
		o.Fabric = &f.fabricName
	}
	if f.busbwNVLink > 0 {
		o.BusbwNVLink = &f.busbwNVLink
	}
	if f.powerLimitW > 0 {
		o.PowerLimitW = &f.powerLimitW
	}
	if f.powerDefaultW > 0 {
		o.PowerDefaultW = &f.powerDefaultW
	}
	if f.maxDuration > 0 {
		o.MaxDuration = &f.maxDuration
	}
	return o
}

func (m maybe) pointer() *float64 {
	if !m.known {
		return nil
	}
	return &m.v
}
