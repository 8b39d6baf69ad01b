package agent

import (
	"context"

	"github.com/musterhq/muster/agent/workload/container"
	"github.com/musterhq/muster/internal/agentapi"
)

// rdmaOf returns the RDMA ports that a workload gets. The server gives them to one node that has the whole host; the
// host checks that itself, because nothing else separates the RDMA of two nodes.
//
// If the cluster has a partition, the ports are put into it first, and the tables of the ports must show it: they are
// checked before each start, because the cluster before may have left them elsewhere.
func (a *Agent) rdmaOf(ctx context.Context, r *run, spec agentapi.LeaseSpec) ([]agentapi.HCA, error) {
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
	p := spec.Network.Partition
	if p == nil {
		return ports, nil
	}
	if a.cfg.Partitions == nil {
		return nil, container.Refusal{Reason: agentapi.ReasonNotOffered, Detail: "the host puts no ports into partitions"}
	}
	return a.cfg.Partitions.Join(ctx, *p, ports)
}

// Partitions puts RDMA ports into the partition of a cluster; see package fabric.
type Partitions interface {
	Join(ctx context.Context, p agentapi.Partition, ports []agentapi.HCA) ([]agentapi.HCA, error)
	Leave(ctx context.Context, p agentapi.Partition, ports []agentapi.HCA) error
	Check(p agentapi.Partition, ports []agentapi.HCA) error // that they are in it, and in no other
}

// lostPartition returns why the ports of a running workload are not in its cluster's partition alone, "" while they
// are: a subnet manager that starts with another configuration moves them under it. The node is not well then, so that
// the server ends the lease or has another host take the rank.
func (a *Agent) lostPartition(v view) string {
	p := v.spec().Network.Partition
	if p == nil || a.cfg.Partitions == nil || a.cfg.RDMA == nil || !v.rec.Started || v.rec.Outcome != nil {
		return ""
	}
	if err := a.cfg.Partitions.Check(*p, a.cfg.RDMA()); err != nil {
		return err.Error()
	}
	return ""
}

// leavePartition takes the ports out of an ended run's partition. If it fails, they stay there, unused, until the next
// cluster's ports are put into theirs.
func (a *Agent) leavePartition(ctx context.Context, r *run, v view) {
	p := v.spec().Network.Partition
	if p == nil || a.cfg.Partitions == nil || a.cfg.RDMA == nil || v.rec.WorkID == "" {
		return
	}
	if v.superseded || a.neighbourOf(r) != "" { // a newer run may have put them into its own already
		return
	}
	if err := a.cfg.Partitions.Leave(ctx, *p, a.cfg.RDMA()); err != nil {
		a.log.Warn("RDMA ports stay in an ended cluster's partition", "lease", r.ref, "err", err)
	}
}

// neighbourOf returns another run with a workload on this host, or "". A run whose containers are removed is none: its
// record stays until the server has taken note of its end.
func (a *Agent) neighbourOf(r *run) string {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, l := range a.leases {
		for _, o := range l.runs {
			if o != r && o.rec.WorkID != "" && !o.rec.Down && !o.rec.Gone {
				return o.ref.String()
			}
		}
	}
	return ""
}
