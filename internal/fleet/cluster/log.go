package cluster

import (
	"context"
	"fmt"

	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
)

// MaxLog is the largest part of the end of a node's log that is stored, in bytes.
const MaxLog = 4 << 20

// KeptLog is a log that waits on a host.
type KeptLog struct {
	Cluster id.Cluster
	Node    id.Node
	Host    id.Host
	Ref     agentapi.LeaseRef
	Rank    int
}

// KeptLogs returns logs of ended runs that connected hosts keep and that are not stored yet: at most limit, and at most
// perHost of each host.
func (c *Clusters) KeptLogs(ctx context.Context, perHost, limit int) ([]KeptLog, error) {
	rows, err := c.db.Q.KeptLogs(ctx, int64(perHost), int32(limit))
	if err != nil {
		return nil, fmt.Errorf("kept logs: %w", err)
	}
	out := make([]KeptLog, len(rows))
	for i, r := range rows {
		out[i] = KeptLog{
			Cluster: r.ClusterID, Node: r.NodeID, Host: r.HostID, Rank: int(r.Rank),
			Ref: agentapi.LeaseRef{Lease: r.LeaseID.String(), Epoch: int(r.Epoch)},
		}
	}
	return out, nil
}

// StoreLog stores the end of a run's log: agentapi.LogFrame JSON lines. If a log of the run is stored already, it
// stays.
func (c *Clusters) StoreLog(ctx context.Context, node id.Node, epoch int, content []byte, truncated bool) error {
	if len(content) > MaxLog {
		return fault.New(fault.TooLarge, "A kept log has at most %d bytes.", MaxLog)
	}
	err := c.db.Q.SaveNodeLog(ctx, dbq.SaveNodeLogParams{
		NodeID:    node,
		Epoch:     int32(epoch),
		Content:   content,
		Truncated: truncated,
	})
	if err != nil {
		return fmt.Errorf("store the log of %s: %w", node, err)
	}
	if err := c.db.Q.DropNodeLogRetry(ctx, node, int32(epoch)); err != nil {
		return fmt.Errorf("store the log of %s: %w", node, err)
	}
	return nil
}

// PostponeLog schedules the next attempt to fetch a kept log, after a minute at first, then after twice the time, at
// most an hour, so that others are fetched meanwhile.
func (c *Clusters) PostponeLog(ctx context.Context, node id.Node, epoch int) error {
	if err := c.db.Q.PostponeNodeLog(ctx, node, int32(epoch)); err != nil {
		return fmt.Errorf("postpone the log of %s: %w", node, err)
	}
	return nil
}

// LogDays is the number of days for which a stored log can be read.
const LogDays = 90

// DropOldLogs deletes stored logs that are older than LogDays, a limited number per call, and returns how many.
func (c *Clusters) DropOldLogs(ctx context.Context) (int, error) {
	n, err := c.db.Q.DropOldLogs(ctx, LogDays, 200)
	if err != nil {
		return 0, fmt.Errorf("drop old logs: %w", err)
	}
	return int(n), nil
}

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
func (c *Clusters) Log(ctx context.Context, org id.Org, cl id.Cluster, rank int) (Log, error) {
	row, err := c.owned(ctx, org, cl)
	if err != nil {
		return Log{}, err
	}
	if rank < 0 || rank >= int(row.NodeCount) {
		return Log{}, fault.InvalidField("query.node", "this cluster has ranks 0 to %d", row.NodeCount-1)
	}
	kept, err := c.db.Q.NodeLogs(ctx, cl, int32(rank))
	if err != nil {
		return Log{}, fmt.Errorf("logs of %s: %w", cl, err)
	}
	var out Log
	stored := false
	live, err := c.db.Q.LiveLease(ctx, cl, int32(rank))
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
