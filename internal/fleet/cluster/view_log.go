package cluster

import (
	"context"
	"fmt"

	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
)

// Log is the output of one rank: the stored logs of its ended runs, and where its present run can be read.
type Log struct {
	Runs []RunLog
	Live *LiveLog // nil once nothing of the node is left on a host
}

// RunLog is the kept log of one ended run.
type RunLog struct {
	Epoch     int
	Content   []byte // agentapi.LogFrame JSON lines
	Truncated bool   // the beginning is missing
}

// LiveLog names the run whose output its host can stream.
type LiveLog struct {
	Host id.Host
	Ref  agentapi.LeaseRef
}

// Log returns the output of a rank of one of the organisation's clusters.
func (vs *Views) Log(ctx context.Context, org id.Org, cl id.Cluster, rank int) (Log, error) {
	row, err := vs.owned(ctx, org, cl)
	if err != nil {
		return Log{}, err
	}
	if rank < 0 || rank >= int(row.NodeCount) {
		return Log{}, fault.InvalidField("query.node", "this cluster has ranks 0 to %d", row.NodeCount-1)
	}
	kept, err := vs.db.Q.NodeLogs(ctx, cl, int32(rank))
	if err != nil {
		return Log{}, fmt.Errorf("logs of %s: %w", cl, err)
	}
	var out Log
	stored := false
	live, err := vs.db.Q.LiveLease(ctx, cl, int32(rank))
	if err != nil {
		return Log{}, fmt.Errorf("live log of %s: %w", cl, err)
	}
	for _, k := range kept {
		out.Runs = append(out.Runs, RunLog{Epoch: int(k.Epoch), Content: k.Content, Truncated: k.Truncated})
		stored = stored || k.Epoch == live.Epoch
	}
	if !stored && (live.GoneAt == nil || live.Kept) {
		out.Live = &LiveLog{Host: live.HostID, Ref: agentapi.LeaseRef{Lease: live.LeaseID.String(), Epoch: int(live.Epoch)}}
	}
	return out, nil
}
