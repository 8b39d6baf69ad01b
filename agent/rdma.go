package agent

import (
	"context"
	"log/slog"

	"github.com/musterhq/muster/agent/workload/container"
	"github.com/musterhq/muster/internal/agentapi"
)

// rdmaPorts are the RDMA ports that the operator lends.
type rdmaPorts struct {
	lent       func() []agentapi.HCA // those that are up now; nil: none
	partitions Partitions            // puts them into clusters' partitions; nil: the host does not
	runs       *runs
	log        *slog.Logger
}

// of returns the RDMA ports that a workload gets. The server gives them to one node that has the whole host; the
// host checks that itself, because nothing else separates the RDMA of two nodes.
//
// If the cluster has a partition, the ports are put into it first, and the tables of the ports must show it: they are
// checked before each start, because the cluster before may have left them elsewhere.
func (p *rdmaPorts) of(ctx context.Context, r *run, spec agentapi.LeaseSpec) ([]agentapi.HCA, error) {
	if spec.Network.Fabric == "" {
		return nil, nil
	}
	if spec.Network.Fabric != agentapi.FabricRDMA {
		return nil, container.Refusal{Reason: agentapi.ReasonNotOffered,
			Detail: "this host's agent does not know the fabric " + spec.Network.Fabric}
	}
	if other := p.runs.neighbourOf(r); other != "" {
		return nil, container.Refusal{Reason: agentapi.ReasonNotOffered,
			Detail: "RDMA is for a node that has the whole host, and " + other + " is on it"}
	}
	if p.lent == nil {
		return nil, container.Refusal{Reason: agentapi.ReasonNotOffered, Detail: "the host lends no RDMA ports"}
	}
	ports := p.lent()
	if len(ports) == 0 {
		return nil, container.Refusal{Reason: agentapi.ReasonNotOffered,
			Detail: "none of the host's RDMA ports that it lends is up"}
	}
	part := spec.Network.Partition
	if part == nil {
		return ports, nil
	}
	if p.partitions == nil {
		return nil, container.Refusal{Reason: agentapi.ReasonNotOffered, Detail: "the host puts no ports into partitions"}
	}
	return p.partitions.Join(ctx, *part, ports)
}

// Partitions puts RDMA ports into the partition of a cluster; see package fabric.
type Partitions interface {
	Join(ctx context.Context, p agentapi.Partition, ports []agentapi.HCA) ([]agentapi.HCA, error)
	Leave(ctx context.Context, p agentapi.Partition, ports []agentapi.HCA) error
	Check(p agentapi.Partition, ports []agentapi.HCA) error // that they are in it, and in no other
}

// lost returns why the ports of a running workload are not in its cluster's partition alone, "" while they
// are: a subnet manager that starts with another configuration moves them under it. The node is not well then, so that
// the server ends the lease or has another host take the rank.
func (p *rdmaPorts) lost(v view) string {
	part := v.spec().Network.Partition
	if part == nil || p.partitions == nil || p.lent == nil || !v.rec.Started || v.rec.Outcome != nil {
		return ""
	}
	if err := p.partitions.Check(*part, p.lent()); err != nil {
		return err.Error()
	}
	return ""
}

// leave takes the ports out of an ended run's partition. If it fails, they stay there, unused, until the next
// cluster's ports are put into theirs.
func (p *rdmaPorts) leave(ctx context.Context, r *run, v view) {
	part := v.spec().Network.Partition
	if part == nil || p.partitions == nil || p.lent == nil || v.rec.WorkID == "" {
		return
	}
	if v.superseded || p.runs.neighbourOf(r) != "" { // a newer run may have put them into its own already
		return
	}
	if err := p.partitions.Leave(ctx, *part, p.lent()); err != nil {
		p.log.Warn("RDMA ports stay in an ended cluster's partition", "lease", r.ref, "err", err)
	}
}
