package market

import (
	"strings"

	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/money"
)

// Offer is what a host sells now: one model on one host. A nil field is not known.
type Offer struct {
	ID              id.Offer    `json:"id"`
	HostID          id.Host     `json:"host_id"`
	HostName        string      `json:"host_name"`
	GPUModel        string      `json:"gpu_model"`
	GPUArch         string      `json:"gpu_arch"`
	GPUsFree        int         `json:"gpus_free"`
	GPUsTotal       int         `json:"gpus_total"`
	VRAMGB          int64       `json:"vram_gb"`
	ComputeCap      string      `json:"compute_cap"`
	CUDAMax         string      `json:"cuda_max"`
	Driver          string      `json:"driver"`
	NVLink          bool        `json:"nvlink"`
	NVLinkGbps      float64     `json:"nvlink_gbps"`
	PowerLimitW     *int64      `json:"power_limit_w" doc:"watts each GPU may draw; the lowest of the offer's GPUs"`
	PowerDefaultW   *int64      `json:"power_default_w" doc:"watts it was made to draw; with a limit below it is slower"`
	PCIeGen         int         `json:"pcie_gen"`
	CPUCores        int         `json:"cpu_cores" doc:"of the host; a node gets the part its GPUs are of the host's"`
	RAMGB           int64       `json:"ram_gb" doc:"of the host; as with cpu_cores"`
	DiskGB          int64       `json:"disk_gb" doc:"free"`
	DiskLimited     bool        `json:"disk_limited" doc:"a node cannot write more than its disk_gb, nor can its neighbours"`
	ScratchGB       int64       `json:"scratch_gb" doc:"free of the fast disk that nodes can ask for scratch on; included in the price; 0: the host has none"`
	Runtimes        []string    `json:"runtimes" doc:"OCI runtimes that workloads can be run with: runc, runsc (gVisor); in queries: runtime"`
	Region          string      `json:"region"`
	Fabric          *string     `json:"fabric"`
	BusbwGbps       *float64    `json:"busbw_gbps" doc:"all-reduce between hosts of the fabric, measured"`
	NetUpMbps       *float64    `json:"net_up_mbps"`
	NetDownMbps     *float64    `json:"net_down_mbps"`
	Reliability     *float64    `json:"reliability" doc:"0 to 1"`
	Verified        bool        `json:"verified"`
	PricePerGPUHour money.Micro `json:"price_per_gpu_hour"`
	PricePerGPUSec  money.Nano  `json:"price_per_gpu_second" doc:"for display; the price per hour binds"`
	MinGPUs         int         `json:"min_gpus"`
	MaxDuration     *int64      `json:"max_duration" doc:"seconds; null: no limit"`
	Simulated       bool        `json:"simulated"`
	MultiNode       bool        `json:"multi_node"`
}

// PerSecond is an hourly price per second, rounded down to a nano-unit: for display.
func PerSecond(rate money.Micro) money.Nano { return money.CostOf(rate, 1000) }

func (l *lot) offerView() Offer {
	f, h := &l.class.facts, l.entry.host
	o := Offer{
		ID:              l.offer.ID,
		HostID:          h.ID,
		HostName:        h.Name,
		GPUModel:        f.model,
		GPUArch:         f.arch,
		GPUsFree:        f.free,
		GPUsTotal:       f.total,
		VRAMGB:          f.vramGB,
		ComputeCap:      f.computeCap,
		CUDAMax:         f.cudaMax,
		Driver:          f.driver,
		NVLink:          f.nvlink,
		NVLinkGbps:      f.nvlinkGbps,
		PCIeGen:         f.pcieGen,
		CPUCores:        f.cpuCores,
		RAMGB:           f.ramMB >> 10,
		DiskGB:          f.diskFreeGB,
		DiskLimited:     f.diskLimited,
		ScratchGB:       f.scratchFreeGB,
		Runtimes:        strings.Fields(f.runtimes),
		Region:          f.region,
		BusbwGbps:       f.busbwGbps.pointer(),
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
	if f.fabricName != "" {
		o.Fabric = &f.fabricName
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
