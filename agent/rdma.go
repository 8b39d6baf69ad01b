package agent

import (
	"github.com/musterhq/muster/agent/container"
	"github.com/musterhq/muster/internal/agentapi"
)

// rdmaOf returns the RDMA ports that a workload gets. The server gives them to one node that has the whole host; the
// host checks that itself, because nothing else separates the RDMA of two nodes.
func (a *Agent) rdmaOf(r *run, spec agentapi.LeaseSpec) ([]agentapi.HCA, error) {
	if spec.Network.Fabric == "" {
		return nil, nil
	}
	if spec.Network.Fabric != agentapi.FabricRDMA {
		return nil, container.Refusal{Reason: agentapi.ReasonNotOffered,
			Detail: "this host's agent does not know the fabric " + spec.Network.Fabric}
	}
	if other := a.neighbourOf(r); other != "" {
		return nil, container.Refusal{Reason: agentapi.ReasonNotOffered,
			Detail: "RDMA is for a node that has the whole host, and " + other + " is on it"}
	}
	if a.cfg.RDMA == nil {
		return nil, container.Refusal{Reason: agentapi.ReasonNotOffered, Detail: "the host lends no RDMA ports"}
	}
	ports := a.cfg.RDMA()
	if len(ports) == 0 {
		return nil, container.Refusal{Reason: agentapi.ReasonNotOffered,
			Detail: "none of the host's RDMA ports that it lends is up"}
	}
	return ports, nil
}

// neighbourOf returns another run with a workload on this host, or "".
func (a *Agent) neighbourOf(r *run) string {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, l := range a.leases {
		for _, o := range l.runs {
			if o != r && o.rec.WorkID != "" {
				return o.ref.String()
			}
		}
	}
	return ""
}
