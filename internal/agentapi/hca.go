package agentapi

// RDMA is what a host lends of its RDMA network to a renter of the whole host. Nothing of the host's isolates it:
// packets pass neither its firewall nor WireGuard.
type RDMA struct {
	Gbps      float64 `json:"gbps"`      // of all ports that are lent and up
	Rails     int     `json:"rails"`     // how many those are
	Isolation string  `json:"isolation"` // IsolationSole, IsolationPartition
	// Link is what all its ports are: LinkInfiniBand, LinkRoCE or LinkEFA; "" from older agents.
	Link string `json:"link,omitempty"`
	// NCCL means that the host can measure its ports with NCCL (Network.NCCL).
	NCCL bool `json:"nccl,omitempty"`
}

// The kinds of RDMA networks. Ports of different kinds do not reach each other.
const (
	LinkInfiniBand = "infiniband"
	LinkRoCE       = "roce" // RoCE v2 on Ethernet
	LinkEFA        = "efa"  // AWS
)

// IsolationSole means that one organisation at a time rents a fabric with RDMA: the fabric itself separates no tenants.
const IsolationSole = "sole_tenant"

// IsolationPartition means that the host puts its ports into a partition of the cluster's own before each start, and
// starts nothing that has RDMA unless they are in that one only. If all hosts of a fabric do, several organisations may
// rent it with RDMA at a time.
const IsolationPartition = "partition"

// Partition is the partition of a cluster in a fabric: only ports in the same partition exchange packets.
type Partition struct {
	Fabric  string `json:"fabric"` // its name at the operator
	Cluster string `json:"cluster"`
	PKey    int    `json:"pkey"` // without the bit for full members: 0x2000 to 0x7ffe
}

// FabricRDMA is the value of Network.Fabric that asks for the ports that the host lends.
const FabricRDMA = "rdma"

// HCA is one port of an RDMA device of a host: InfiniBand, RoCE or a cloud's own. Devices without a network port are
// listed, too.
type HCA struct {
	Device    string   `json:"device"` // mlx5_0
	Port      int      `json:"port"`
	Driver    string   `json:"driver,omitempty"`     // mlx5_core, efa, bnxt_re, ionic, irdma, rdma_rxe
	LinkLayer string   `json:"link_layer,omitempty"` // InfiniBand, Ethernet
	State     string   `json:"state,omitempty"`      // ACTIVE, INIT, DOWN
	Gbps      float64  `json:"gbps,omitempty"`       // of its link now; 0: not known
	NodeGUID  string   `json:"node_guid,omitempty"`
	PortGUID  string   `json:"port_guid,omitempty"`     // InfiniBand's, from its first GID
	Subnet    string   `json:"subnet_prefix,omitempty"` // InfiniBand's, from its first GID
	PKeys     []string `json:"pkeys,omitempty"`         // those in use, 0xffff
	// GIDIndex is the index of the address that RoCE v2 uses, and GID that address; not known without one.
	GIDIndex Optional[int] `json:"gid_index"`
	GID      string        `json:"gid,omitempty"`
	// PKeyIndex is the index of the partition that the workload uses; not known without partitions.
	PKeyIndex Optional[int] `json:"-"`
	Netdev    string        `json:"netdev,omitempty"` // its network port; "": none
	PCIBus    string        `json:"pci_bus,omitempty"`
	NUMANode  Optional[int] `json:"numa_node"`
	Verbs     string        `json:"verbs,omitempty"` // uverbs0: its node below /dev/infiniband
	// NVSwitch: the device is part of the GPUs' own switches, which the fabric manager uses. It is never given away.
	NVSwitch bool `json:"nvswitch,omitempty"`
	// Lent: the operator lends it to renters of the whole host (see RDMA).
	Lent bool `json:"lent,omitempty"`
}

// Link returns which kind of network the port is of, "" if RDMA of that kind is not known.
func (h HCA) Link() string {
	switch {
	case h.Driver == "efa":
		return LinkEFA
	case h.LinkLayer == "InfiniBand":
		return LinkInfiniBand
	case h.LinkLayer == "Ethernet":
		return LinkRoCE
	}
	return ""
}
