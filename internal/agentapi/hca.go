package agentapi

// RDMA is what a host lends of its RDMA network to a renter of the whole host. Nothing of the host's isolates it:
// packets pass neither its firewall nor WireGuard.
type RDMA struct {
	Gbps      float64 `json:"gbps"`      // of all ports that are lent and up
	Rails     int     `json:"rails"`     // how many those are
	Isolation string  `json:"isolation"` // IsolationSole
}

// IsolationSole means that one organisation at a time rents a fabric with RDMA: the fabric itself separates no tenants.
const IsolationSole = "sole_tenant"

// FabricRDMA is the value of Network.Fabric that asks for the ports that the host lends.
const FabricRDMA = "rdma"

// HCA is one port of an RDMA device of a host: InfiniBand, RoCE or a cloud's own. Devices without a network port are
// listed, too.
type HCA struct {
	Device    string        `json:"device"` // mlx5_0
	Port      int           `json:"port"`
	Driver    string        `json:"driver,omitempty"`     // mlx5_core, efa, bnxt_re, ionic, irdma
	LinkLayer string        `json:"link_layer,omitempty"` // InfiniBand, Ethernet
	State     string        `json:"state,omitempty"`      // ACTIVE, INIT, DOWN
	Gbps      float64       `json:"gbps,omitempty"`       // of its link now; 0: not known
	NodeGUID  string        `json:"node_guid,omitempty"`
	PortGUID  string        `json:"port_guid,omitempty"`     // InfiniBand's, from its first GID
	Subnet    string        `json:"subnet_prefix,omitempty"` // InfiniBand's, from its first GID
	PKeys     []string      `json:"pkeys,omitempty"`         // those in use, 0xffff
	Netdev    string        `json:"netdev,omitempty"`        // its network port; "": none
	PCIBus    string        `json:"pci_bus,omitempty"`
	NUMANode  Optional[int] `json:"numa_node"`
	Verbs     string        `json:"verbs,omitempty"` // uverbs0: its node below /dev/infiniband
	// NVSwitch: the device is part of the GPUs' own switches, which the fabric manager uses. It is never given away.
	NVSwitch bool `json:"nvswitch,omitempty"`
	// Lent: the operator lends it to renters of the whole host (see RDMA).
	Lent bool `json:"lent,omitempty"`
}
