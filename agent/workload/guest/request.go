package guest

import "github.com/musterhq/muster/internal/agentapi"

// PreflightRequest asks a guest to measure the overlay together with all other ranks.
type PreflightRequest struct {
	agentapi.LeaseRef
	Rank      int      `json:"rank"`
	Addresses []string `json:"addresses"` // overlay addresses, by rank
	Bytes     int64    `json:"bytes"`     // bytes of the all-reduce; 0 = 8 MiB. The same on every rank.
	JoinMS    int64    `json:"join_ms"`   // how long the others may take to answer; 0 = 60 s
	TotalMS   int64    `json:"total_ms"`  // time limit in total; 0 = 120 s
	MinGbps   float64  `json:"min_gbps"`  // the preflight fails below it
}

// PreflightOf returns the request for a lease.
func PreflightOf(spec agentapi.LeaseSpec) PreflightRequest {
	r := PreflightRequest{
		LeaseRef:  spec.LeaseRef,
		Rank:      spec.Rank,
		Addresses: make([]string, spec.Nodes),
		MinGbps:   spec.Network.MinGbps,
	}
	r.Addresses[spec.Rank] = spec.Network.Address
	for _, p := range spec.Network.Peers {
		r.Addresses[p.Rank] = p.Address
	}
	return r
}
