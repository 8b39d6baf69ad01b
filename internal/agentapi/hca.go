package agentapi

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
}
