package probe

import (
	"fmt"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/musterhq/muster/agent/machine/gpu/wire"
)

// peers returns what a GPU has in common with every GPU, by index.
func (p *probe) peers(d nvml.Device) ([]wire.Peer, *wire.Error) {
	self, err := call(p, "nvmlDeviceGetIndex", d.GetIndex)
	if err != nil {
		return nil, err
	}
	n, err := call(p, "nvmlDeviceGetCount", p.lib.DeviceGetCount)
	if err != nil {
		return nil, err
	}
	mine := p.reach(d)
	out := make([]wire.Peer, n)
	for i := range out {
		if i == self {
			out[i] = wire.Peer{Level: "X", P2P: "X"}
			continue
		}
		other, err := p.byIndex(i)
		if err != nil {
			continue // the peer is sick, not this GPU
		}
		out[i] = wire.Peer{Level: p.level(d, other, mine), P2P: p.p2p(d, other)}
	}
	return out, nil
}

// reach counts a GPU's active NVLinks: those into switches, which lead to every GPU of the system that is on the
// switches too, and those to a GPU's bus id.
type reach struct {
	switched int
	direct   map[string]int
}

func (p *probe) reach(d nvml.Device) reach {
	r := reach{direct: map[string]int{}}
	for _, link := range p.links(d) {
		if !link.Active {
			continue
		}
		if p.switched(d, link.Link) {
			r.switched++
		} else {
			r.direct[link.Remote]++
		}
	}
	return r
}

func (p *probe) level(d, other nvml.Device, mine reach) string {
	bus, err := p.pci(other)
	if err != nil {
		return ""
	}
	if n := mine.direct[bus]; n > 0 {
		return fmt.Sprintf("NV%d", n)
	}
	if mine.switched > 0 {
		if n := min(mine.switched, p.reach(other).switched); n > 0 {
			return fmt.Sprintf("NV%d", n)
		}
	}
	ancestor, err := call(p, "nvmlDeviceGetTopologyCommonAncestor", func() (nvml.GpuTopologyLevel, nvml.Return) {
		return d.GetTopologyCommonAncestor(other)
	})
	if err != nil {
		return ""
	}
	switch ancestor {
	case nvml.TOPOLOGY_INTERNAL, nvml.TOPOLOGY_SINGLE: // two GPUs of one board are one switch apart
		return "PIX"
	case nvml.TOPOLOGY_MULTIPLE:
		return "PXB"
	case nvml.TOPOLOGY_HOSTBRIDGE:
		return "PHB"
	case nvml.TOPOLOGY_NODE:
		return "NODE"
	}
	return "SYS"
}

func (p *probe) p2p(d, other nvml.Device) string {
	status, err := call(p, "nvmlDeviceGetP2PStatus", func() (nvml.GpuP2PStatus, nvml.Return) {
		return d.GetP2PStatus(other, nvml.P2P_CAPS_INDEX_READ)
	})
	if err != nil {
		return ""
	}
	switch status {
	case nvml.P2P_STATUS_OK:
		return "OK"
	case nvml.P2P_STATUS_CHIPSET_NOT_SUPPORTED:
		return "CNS"
	case nvml.P2P_STATUS_GPU_NOT_SUPPORTED:
		return "GNS"
	case nvml.P2P_STATUS_IOH_TOPOLOGY_NOT_SUPPORTED:
		return "TNS"
	case nvml.P2P_STATUS_DISABLED_BY_REGKEY:
		return "DR"
	case nvml.P2P_STATUS_NOT_SUPPORTED:
		return "NS"
	}
	return "U"
}
