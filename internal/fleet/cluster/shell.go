package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/fleet/market"
	"github.com/musterhq/muster/internal/id"
)

// Door says whose a cluster is and which keys open its shells.
type Door struct {
	Org   id.Org
	Nodes int
	keys  []id.SSHKey // empty: every key of the org
}

// Opens reports whether this key of the org does.
func (d Door) Opens(key id.SSHKey) bool { return len(d.keys) == 0 || slices.Contains(d.keys, key) }

// Door finds a cluster for somebody who has yet to show a key of its org. NotFound says no more than that.
func (c *Clusters) Door(ctx context.Context, cl id.Cluster) (Door, error) {
	row, err := c.db.Q.GetCluster(ctx, cl)
	if db.NoRows(err) {
		return Door{}, errNotFound
	}
	if err != nil {
		return Door{}, fmt.Errorf("find %s: %w", cl, err)
	}
	var spec market.Spec
	if err := json.Unmarshal(row.Cluster.Spec, &spec); err != nil {
		return Door{}, fmt.Errorf("read the spec of %s: %w", cl, err)
	}
	return Door{Org: row.Cluster.OrgID, Nodes: int(row.Cluster.NodeCount), keys: spec.SSHKeyIDs}, nil
}

// Rank is where one rank of a running cluster is.
type Rank struct {
	Host id.Host
	Ref  agentapi.LeaseRef
}

// Shell finds a rank of one of the org's clusters for a shell or a port. Conflict when the rank does not run at the
// moment; the message says why, for the renter.
func (c *Clusters) Shell(ctx context.Context, org id.Org, cl id.Cluster, rank int) (Rank, error) {
	row, err := c.owned(ctx, org, cl)
	if err != nil {
		return Rank{}, err
	}
	if rank < 0 || rank >= int(row.NodeCount) {
		return Rank{}, fault.New(fault.Invalid, "There is no rank %d: %s has ranks 0 to %d.", rank, cl, row.NodeCount-1)
	}
	l, err := c.db.Q.ShellLease(ctx, cl, int32(rank))
	if err != nil {
		return Rank{}, fmt.Errorf("where rank %d of %s is: %w", rank, cl, err)
	}
	switch state := State(l.State); {
	case state == Provisioning:
		return Rank{}, fault.New(fault.Conflict, "%s is still starting: rank %d is %s. Its shell opens once every rank runs.",
			cl, rank, l.NodeState)
	case state != Running && state != Degraded:
		return Rank{}, fault.New(fault.Conflict, "%s is %s: there is nothing left to open a shell on. Its logs stay: "+
			"muster cluster logs %s", cl, state, cl)
	case NodeState(l.NodeState) != NodeReady:
		return Rank{}, fault.New(fault.Conflict, "Rank %d of %s is %s at the moment.", rank, cl, l.NodeState)
	}
	return Rank{Host: l.HostID, Ref: agentapi.LeaseRef{Lease: l.LeaseID.String(), Epoch: int(l.Epoch)}}, nil
}
