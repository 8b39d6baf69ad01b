package cluster

import (
	"context"
	"fmt"

	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/db"
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

// Logs are the logs of ended runs: they are kept on their hosts until they are stored here.
type Logs struct {
	db *db.DB
}

// Kept returns logs of ended runs that connected hosts keep and that are not stored yet: at most limit, and at most
// perHost of each host.
func (l *Logs) Kept(ctx context.Context, perHost, limit int) ([]KeptLog, error) {
	rows, err := l.db.Q.KeptLogs(ctx, int64(perHost), int32(limit))
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

// Store stores the end of a run's log: agentapi.LogFrame JSON lines. If a log of the run is stored already, it
// stays.
func (l *Logs) Store(ctx context.Context, node id.Node, epoch int, content []byte, truncated bool) error {
	if len(content) > MaxLog {
		return fault.New(fault.TooLarge, "A kept log has at most %d bytes.", MaxLog)
	}
	err := l.db.Q.SaveNodeLog(ctx, dbq.SaveNodeLogParams{
		NodeID:    node,
		Epoch:     int32(epoch),
		Content:   content,
		Truncated: truncated,
	})
	if err != nil {
		return fmt.Errorf("store the log of %s: %w", node, err)
	}
	if err := l.db.Q.DropNodeLogRetry(ctx, node, int32(epoch)); err != nil {
		return fmt.Errorf("store the log of %s: %w", node, err)
	}
	return nil
}

// Postpone schedules the next attempt to fetch a kept log, after a minute at first, then after twice the time, at
// most an hour, so that others are fetched meanwhile.
func (l *Logs) Postpone(ctx context.Context, node id.Node, epoch int) error {
	if err := l.db.Q.PostponeNodeLog(ctx, node, int32(epoch)); err != nil {
		return fmt.Errorf("postpone the log of %s: %w", node, err)
	}
	return nil
}

// LogDays is the number of days for which a stored log can be read.
const LogDays = 90

// DropOld deletes stored logs that are older than LogDays, a limited number per call, and returns how many.
func (l *Logs) DropOld(ctx context.Context) (int, error) {
	n, err := l.db.Q.DropOldLogs(ctx, LogDays, 200)
	if err != nil {
		return 0, fmt.Errorf("drop old logs: %w", err)
	}
	return int(n), nil
}
