package guest

import "github.com/musterhq/muster/internal/agentapi"

// PreflightRequest asks a guest to measure the overlay together with all other ranks.
type PreflightRequest struct {
	agentapi.LeaseRef
	Rank      int      `json:"rank"`
	Addresses []string `json:"addresses"` // overlay address of every rank, by rank
	Bytes     int64    `json:"bytes"`     // S of the all-reduce; 0 = 8 MiB. The same on every rank.
	JoinMS    int64    `json:"join_ms"`   // how long the others may take to answer; 0 = 60 s
	TotalMS   int64    `json:"total_ms"`  // everything; 0 = 120 s
	MinGbps   float64  `json:"min_gbps"`  // below it the preflight fails
}

// PreflightOf is the request for a lease.
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
