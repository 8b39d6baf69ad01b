package agentapi

// NCCL is what a rank measured with NCCL, by its GPUs and over the RDMA ports that it was lent, before the workload
// started.
type NCCL struct {
	// Kind is why nothing was measured, one of the constants below; "" if it was.
	Kind      string  `json:"kind,omitempty"`
	Detail    string  `json:"detail,omitempty"`
	BusbwGbps float64 `json:"busbw_gbps,omitempty"` // all-reduce over all ranks: S/t·2(n−1)/n, gigabits per second
	LocalGbps float64 `json:"local_gbps,omitempty"` // the same between the node's own GPUs; 0 for one GPU
	Ranks     int     `json:"ranks,omitempty"`      // n: the GPUs of all nodes
	Bytes     int64   `json:"bytes,omitempty"`      // S
	Seconds   float64 `json:"seconds,omitempty"`    // t
	Version   string  `json:"version,omitempty"`    // of NCCL, 2.21.5
	Net       string  `json:"net,omitempty"`        // what NCCL says it sent over: IB, Socket
	Rails     int     `json:"rails,omitempty"`      // how many ports it used
	GDR       bool    `json:"gdr,omitempty"`        // the ports read the GPUs' memory directly
}

// NCCLRequest asks the ranks to measure with NCCL before the start.
type NCCLRequest struct {
	MinGbps float64 `json:"min_gbps,omitempty"` // less than this fails the start
}

// What a measurement with NCCL can end with. The first two say nothing about the network, and do not keep a workload
// from starting.
const (
	NCCLPeers  = "peers"   // not all nodes came to measure
	NCCLSetup  = "setup"   // the host's NCCL cannot be used
	NCCLNoRDMA = "no_rdma" // NCCL cannot use the ports that the host lends
	NCCLFailed = "failed"  // a call failed while all nodes measured
	NCCLHang   = "hang"    // it did not end
	NCCLWrong  = "wrong"   // sums are wrong: data was changed on its way
	NCCLSlow   = "slow"    // less than what the renter asked for
)

// Fails reports whether the workload must not start: its network does not do what it was rented for.
func (n *NCCL) Fails() bool {
	return n != nil && n.Kind != "" && n.Kind != NCCLPeers && n.Kind != NCCLSetup
}
