package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/musterhq/muster/internal/billing/metering"
	"github.com/musterhq/muster/internal/bus"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/money"
)

// Get is one of the org's clusters. NotFound for those of others.
func (c *Clusters) Get(ctx context.Context, org id.Org, cl id.Cluster) (Cluster, error) {
	v, err := view(ctx, c.db.Q, cl)
	if err == nil && v.Org != org {
		return Cluster{}, errNotFound
	}
	return c.withDoubt(ctx, v, err)
}

// Wait is Get, held until the cluster is in the given state, has ended, or d has passed (at most MaxWait).
func (c *Clusters) Wait(ctx context.Context, org id.Org, cl id.Cluster, state State, d time.Duration) (Cluster, error) {
	ctx, cancel := context.WithTimeout(ctx, min(max(d, 0), MaxWait))
	defer cancel()
	changes := c.bus.Watch(ctx, bus.TopicCluster(cl))
	look := time.NewTicker(waitLook) // changes may be lost
	defer look.Stop()
	for {
		v, err := c.Get(context.WithoutCancel(ctx), org, cl)
		if err != nil || v.State == state || v.State.Final() || (v.State == Releasing && state != Released &&
			state != Failed) {
			return v, err
		}
		select {
		case <-ctx.Done():
			return v, nil
		case <-changes:
		case <-look.C:
		}
	}
}

const (
	// MaxWait bounds Wait.
	MaxWait  = 5 * time.Minute
	waitLook = time.Second
)

// ListRequest is one page of an org's clusters, newest first.
type ListRequest struct {
	State State      // "" = any
	After id.Cluster // the last one of the page before; zero: from the newest
	Limit int        // > 0
}

// List is a page of the org's clusters.
func (c *Clusters) List(ctx context.Context, org id.Org, r ListRequest) ([]Cluster, error) {
	rows, err := c.db.Q.ListClusters(ctx, dbq.ListClustersParams{
		OrgID: org, Before: uuids(r.After)[0], State: string(r.State), MaxRows: int32(r.Limit),
	})
	if err != nil {
		return nil, fmt.Errorf("list clusters of %s: %w", org, err)
	}
	clusters := make([]dbq.Cluster, len(rows))
	for i, row := range rows {
		clusters[i] = row.Cluster
	}
	return views(ctx, c.db.Q, clusters)
}

// Events is the timeline, oldest first, from after the given entry (0: from the beginning).
func (c *Clusters) Events(ctx context.Context, org id.Org, cl id.Cluster, after int64, limit int) ([]Event, error) {
	if _, err := c.owned(ctx, org, cl); err != nil {
		return nil, err
	}
	rows, err := c.db.Q.ListClusterEvents(ctx, cl, after, int32(limit))
	if err != nil {
		return nil, fmt.Errorf("events of %s: %w", cl, err)
	}
	out := make([]Event, len(rows))
	for i, r := range rows {
		out[i] = Event{N: r.N, At: r.At, Kind: r.Kind, Rank: intp(r.Rank), Title: r.Title, Detail: r.Detail, Data: r.Data}
	}
	return out, nil
}

// owned is the org's own cluster, or NotFound.
func (c *Clusters) owned(ctx context.Context, org id.Org, cl id.Cluster) (dbq.Cluster, error) {
	r, err := c.db.Q.GetCluster(ctx, cl)
	switch {
	case db.NoRows(err), err == nil && r.Cluster.OrgID != org:
		return dbq.Cluster{}, errNotFound
	case err != nil:
		return dbq.Cluster{}, fmt.Errorf("read cluster %s: %w", cl, err)
	}
	return r.Cluster, nil
}

func view(ctx context.Context, q *dbq.Queries, cl id.Cluster) (Cluster, error) {
	r, err := q.GetCluster(ctx, cl)
	if db.NoRows(err) {
		return Cluster{}, errNotFound
	}
	if err != nil {
		return Cluster{}, fmt.Errorf("read cluster %s: %w", cl, err)
	}
	v, err := views(ctx, q, []dbq.Cluster{r.Cluster})
	if err != nil {
		return Cluster{}, err
	}
	return v[0], nil
}

// views reads what belongs to the rows: nodes, GPUs and costs, together for all.
func views(ctx context.Context, q *dbq.Queries, rows []dbq.Cluster) ([]Cluster, error) {
	ids := make([]id.Cluster, len(rows))
	for i, r := range rows {
		ids[i] = r.ID
	}
	nodes, err := q.ClusterNodes(ctx, uuids(ids...))
	if err != nil {
		return nil, fmt.Errorf("read nodes: %w", err)
	}
	var gpus []id.GPU
	for _, n := range nodes {
		gpus = append(gpus, n.GPUIds...)
	}
	names, err := q.GPUNames(ctx, uuids(gpus...))
	if err != nil {
		return nil, fmt.Errorf("read GPUs: %w", err)
	}
	device := map[id.GPU]GPU{}
	for _, g := range names {
		device[g.ID] = GPU{UUID: g.UUID, Model: g.Model}
	}
	out := make([]Cluster, len(rows))
	for i, r := range rows {
		if out[i], err = plain(r); err != nil {
			return nil, err
		}
		for _, n := range nodes {
			if n.Node.ClusterID == r.ID {
				out[i].Nodes = append(out[i].Nodes, viewNode(n, device))
			}
		}
		out[i].Replacing = replacingOf(r, nodes)
	}
	return out, viewCosts(ctx, q, rows, out)
}

// viewCosts fills in what those of the clusters cost that have run, with as many statements for many as for one.
func viewCosts(ctx context.Context, q *dbq.Queries, rows []dbq.Cluster, out []Cluster) error {
	var ran []id.Cluster
	for _, r := range rows {
		if r.RunningAt != nil {
			ran = append(ran, r.ID)
		}
	}
	costs, err := metering.Costs(ctx, q, ran)
	if err != nil {
		return fmt.Errorf("costs of clusters: %w", err)
	}
	open, err := haveOpenWindow(ctx, q, ran)
	if err != nil {
		return fmt.Errorf("windows of clusters: %w", err)
	}
	for i, r := range rows {
		if r.RunningAt == nil {
			continue
		}
		c := costs[r.ID]
		out[i].CostSoFar, out[i].BillableSeconds = c.Estimate, Seconds(time.Duration(c.EstimateMS)*time.Millisecond)
		out[i].Billing = open[r.ID] && !out[i].State.Ended()
	}
	return nil
}

// plain is what the row itself says.
func plain(r dbq.Cluster) (Cluster, error) {
	v := Cluster{
		ID:             r.ID,
		Org:            r.OrgID,
		Name:           r.Name,
		State:          State(r.State),
		Reason:         Reason(r.Reason),
		Detail:         r.Detail,
		Actions:        actions(r),
		ImageDigest:    r.ImageDigest,
		PricePerHour:   r.Rate,
		PricePerSecond: money.CostOf(r.Rate, 1000),
		Currency:       r.Currency,
		CreatedAt:      r.CreatedAt,
		RunningAt:      r.RunningAt,
		EndedAt:        r.EndedAt,
		Epoch:          int(r.Epoch),
		Nodes:          []Node{},
	}
	if !v.State.Ended() {
		v.RunUntil = r.RunUntil
	}
	if err := json.Unmarshal(r.Spec, &v.Spec); err != nil {
		return v, fmt.Errorf("read the spec of %s: %w", r.ID, err)
	}
	if err := json.Unmarshal(r.Network, &v.Network); err != nil {
		return v, fmt.Errorf("read the network of %s: %w", r.ID, err)
	}
	return v, nil
}

func viewNode(n dbq.ClusterNodesRow, device map[id.GPU]GPU) Node {
	v := Node{
		Rank:     int(n.Node.Rank),
		ID:       n.Node.ID,
		HostID:   n.Node.HostID,
		HostName: n.HostName,
		State:    NodeState(n.Node.State),
		Reason:   Reason(n.Node.Reason),
		Detail:   n.Node.Detail,
		GPUs:     []GPU{},
		Address:  n.Node.Address,
		Required: n.Required,
		Since:    n.Node.Since,
		ExitCode: intp(n.Node.ExitCode),
	}
	if n.NodeStatus.Epoch == n.Node.Epoch {
		_ = json.Unmarshal(n.NodeStatus.Progress, &v.Progress) // for people; what does not read shows nothing
		if _ = json.Unmarshal(n.NodeStatus.Paths, &v.Paths); len(v.Paths) == 0 {
			v.Paths = nil
		}
	}
	for _, g := range n.GPUIds {
		v.GPUs = append(v.GPUs, device[g])
	}
	return v
}

// actions are what the renter may ask for now.
func actions(r dbq.Cluster) []Action {
	switch State(r.State) {
	case Running:
		return []Action{ActionRelease, ActionRestart}
	case Provisioning, Degraded:
		return []Action{ActionRelease}
	}
	return []Action{}
}

func haveOpenWindow(ctx context.Context, q *dbq.Queries, clusters []id.Cluster) (map[id.Cluster]bool, error) {
	out := map[id.Cluster]bool{}
	b := &pgx.Batch{}
	for _, cl := range clusters {
		db.Queue(b, func(ctx context.Context, q *dbq.Queries) error {
			w, err := q.WindowState(ctx, cl)
			out[cl] = w.Open && w.DoubtFromMs == 0
			return err
		})
	}
	return out, db.Send(ctx, q, b)
}
