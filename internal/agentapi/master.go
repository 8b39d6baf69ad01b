package agentapi

// MasterPort is the port of rank 0 at which launchers' processes meet: MASTER_PORT, unless a renter or an image sets
// another.
const MasterPort = 29500

// Master returns the address of rank 0 on the cluster's network.
func (s LeaseSpec) Master() string {
	for _, p := range s.Network.Peers {
		if p.Rank == 0 {
			return p.Address
		}
	}
	return s.Network.Address
}
