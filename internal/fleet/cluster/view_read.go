package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/musterhq/muster/internal/billing/metering"
	"github.com/musterhq/muster/internal/bus"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/fleet/cluster/lifecycle"
	"github.com/musterhq/muster/internal/fleet/host"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/money"
)

// Get returns one of the organisation's clusters. Fault: NotFound, also for clusters of other organisations.
func (vs *Views) Get(ctx context.Context, org id.Org, cl id.Cluster) (Cluster, error) {
	v, err := view(ctx, vs.db.Q, cl)
	if err == nil && v.Org != org {
		return Cluster{}, errNotFound
	}
	return vs.withDoubt(ctx, v, err)
}

// Wait is Get, but returns only once the cluster is in the given state or has ended, or d has passed (at most MaxWait).
func (vs *Views) Wait(ctx context.Context, org id.Org, cl id.Cluster, state lifecycle.State,
	d time.Duration) (Cluster, error) {
	ctx, cancel := context.WithTimeout(ctx, min(max(d, 0), MaxWait))
	defer cancel()
	changes := vs.bus.Watch(ctx, bus.TopicCluster(cl))
	look := time.NewTicker(waitLook) // changes may be lost
	defer look.Stop()
	for {
		v, err := vs.Get(context.WithoutCancel(ctx), org, cl)
		if err != nil || v.State == state || v.State.Final() ||
			(v.State == lifecycle.Releasing && state != lifecycle.Released &&
				state != lifecycle.Failed) {
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
	// MaxWait is the longest time for which Wait waits.
	MaxWait  = 5 * time.Minute
	waitLook = time.Second
)

// Events returns the timeline, oldest first, from after the given event (0: from the beginning).
func (vs *Views) Events(ctx context.Context, org id.Org, cl id.Cluster, after int64, limit int) ([]Event, error) {
	if _, err := vs.owned(ctx, org, cl); err != nil {
		return nil, err
	}
	rows, err := vs.db.Q.ListClusterEvents(ctx, cl, after, int32(limit))
	if err != nil {
		return nil, fmt.Errorf("events of %s: %w", cl, err)
	}
	out := make([]Event, len(rows))
	for i, r := range rows {
		out[i] = Event{N: r.N, At: r.At, Kind: r.Kind, Rank: intp(r.Rank), Title: r.Title, Detail: r.Detail, Data: r.Data}
	}
	return out, nil
}

// owned returns the organisation's own cluster. Fault: NotFound.
func (vs *Views) owned(ctx context.Context, org id.Org, cl id.Cluster) (dbq.Cluster, error) {
	r, err := vs.db.Q.GetCluster(ctx, cl)
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

// views reads what belongs to the rows, for all of them together, in two round trips.
func views(ctx context.Context, q *dbq.Queries, rows []dbq.Cluster) ([]Cluster, error) {
	p, err := readPage(ctx, q, rows)
	if err != nil {
		return nil, err
	}
	out := make([]Cluster, len(rows))
	for i, r := range rows {
		if out[i], err = plain(r); err != nil {
			return nil, err
		}
		for _, n := range p.nodes[r.ID] {
			out[i].Nodes = append(out[i].Nodes, viewNode(n, p.gpus))
		}
		out[i].Replacing = replacingOf(r, p.nodes[r.ID])
		if r.RunningAt != nil {
			c := p.costs[r.ID]
			out[i].CostSoFar, out[i].BillableSeconds = c.Estimate, Seconds(time.Duration(c.EstimateMS)*time.Millisecond)
			out[i].Billing = c.Counting && !out[i].State.Ended()
		}
		if !out[i].State.Ended() {
			out[i].stopsAt(p.nextStop(r, out[i]))
		}
	}
	return out, nil
}

// page is what belongs to the rows of one organisation's clusters.
type page struct {
	nodes map[id.Cluster][]dbq.ClusterNodesRow
	gpus  map[id.GPU]GPU
	costs map[id.Cluster]metering.Cost // of those that have run
	means means                        // of the organisation, if any is paid for
}

// readPage reads it. The number of its statements does not depend on the number of rows.
func readPage(ctx context.Context, q *dbq.Queries, rows []dbq.Cluster) (page, error) {
	p := page{nodes: make(map[id.Cluster][]dbq.ClusterNodesRow, len(rows)), gpus: map[id.GPU]GPU{}}
	if len(rows) == 0 {
		return p, nil
	}
	var all, ran []id.Cluster
	var paid *dbq.Cluster
	for i, r := range rows {
		all = append(all, r.ID)
		if r.RunningAt != nil {
			ran = append(ran, r.ID)
		}
		if paid == nil && !lifecycle.State(r.State).Ended() && r.RunUntil != nil {
			paid = &rows[i]
		}
	}
	var nodes []dbq.ClusterNodesRow
	var gpus []dbq.GPUsOfClustersRow
	b := &pgx.Batch{}
	db.Read(b, &nodes, (*dbq.Queries).ClusterNodes, id.UUIDs(all...))
	db.Read(b, &gpus, (*dbq.Queries).GPUsOfClusters, id.UUIDs(all...))
	if paid != nil {
		queueMeans(b, &p.means, paid.OrgID, paid.Currency)
	}
	costs := metering.QueueCosts(b, ran)
	err := db.Send(ctx, q, b)
	if err != nil {
		return p, fmt.Errorf("read nodes, GPUs, money and meters of clusters: %w", err)
	}
	if p.costs, err = costs(ctx, q); err != nil {
		return p, fmt.Errorf("costs of clusters: %w", err)
	}
	for _, n := range nodes {
		p.nodes[n.Node.ClusterID] = append(p.nodes[n.Node.ClusterID], n)
	}
	for _, g := range gpus {
		p.gpus[g.ID] = GPU{UUID: g.UUID, Model: g.Model}
	}
	return p, nil
}

// plain converts the row of a cluster, without what other tables hold.
func plain(r dbq.Cluster) (Cluster, error) {
	v := Cluster{
		ID:             r.ID,
		Org:            r.OrgID,
		Name:           r.Name,
		State:          lifecycle.State(r.State),
		Reason:         lifecycle.Reason(r.Reason),
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
		State:    lifecycle.NodeState(n.Node.State),
		Reason:   lifecycle.Reason(n.Node.Reason),
		Detail:   n.Node.Detail,
		GPUs:     []GPU{},
		Address:  n.Node.Address,
		Required: n.Required,
		Since:    n.Node.Since,
		ExitCode: intp(n.Node.ExitCode),
	}
	if n.NodeStatus.Epoch == n.Node.Epoch {
		_ = json.Unmarshal(n.NodeStatus.Progress, &v.Progress) // for people; unreadable paths are not shown
		if _ = json.Unmarshal(n.NodeStatus.Paths, &v.Paths); len(v.Paths) == 0 {
			v.Paths = nil
		}
	}
	v.Uploading = uploadingOf(n, v.Progress.Uploads != nil)
	for _, g := range n.GPUIds {
		v.GPUs = append(v.GPUs, device[g])
	}
	return v
}

// actions returns the actions that the renter may take now.
func actions(r dbq.Cluster) []Action {
	switch lifecycle.State(r.State) {
	case lifecycle.Running:
		return []Action{ActionRelease, ActionRestart}
	case lifecycle.Provisioning, lifecycle.Degraded:
		return []Action{ActionRelease}
	}
	return []Action{}
}

// GPUMetrics is the readings of one GPU from the time in which the cluster had it. A rank that was replaced also has
// the GPUs of its former hosts, with a HadUntil.
type GPUMetrics struct {
	Rank     int
	Host     id.Host
	HostName string
	UUID     string
	Model    string
	VRAMMB   int64
	HadFrom  time.Time
	HadUntil *time.Time    // nil = the cluster still has it
	Samples  []host.Sample // by time
}

// Metrics returns what the cluster's GPUs reported in [from, to), thinned to one sample per step (0:
// host.TelemetryStep), by rank, time and index. Fault: NotFound, also for clusters of other organisations.
func (vs *Views) Metrics(ctx context.Context, org id.Org, cl id.Cluster, from, to time.Time,
	step time.Duration) ([]GPUMetrics, error) {
	if _, err := vs.owned(ctx, org, cl); err != nil {
		return nil, err
	}
	had, err := vs.db.Q.GPUsOfCluster(ctx, cl)
	if err != nil {
		return nil, fmt.Errorf("GPUs of %s: %w", cl, err)
	}
	gpus := make([]id.GPU, 0, len(had))
	for _, g := range had {
		if !slices.Contains(gpus, g.ID) {
			gpus = append(gpus, g.ID)
		}
	}
	series, err := host.Telemetry(ctx, vs.db.Q, gpus, from, to, step)
	if err != nil {
		return nil, err
	}
	out := make([]GPUMetrics, len(had))
	for i, g := range had {
		out[i] = GPUMetrics{
			Rank: int(g.Rank), Host: g.HostID, HostName: g.HostName, UUID: g.UUID, Model: g.Model, VRAMMB: g.VramMb,
			HadFrom: g.HadFrom, HadUntil: g.HadUntil,
		}
		for _, s := range series[slices.Index(gpus, g.ID)].Samples {
			// What the GPU did before and after belongs to other renters.
			if !s.At.Before(g.HadFrom) && (g.HadUntil == nil || s.At.Before(*g.HadUntil)) {
				out[i].Samples = append(out[i].Samples, s)
			}
		}
	}
	return out, nil
}

// NodeMetrics is the rates of one rank on one host. A rank that was replaced also has those of its former hosts, with a
// HadUntil.
type NodeMetrics struct {
	Rank     int
	Lease    id.Lease
	Host     id.Host
	HostName string
	HadFrom  time.Time
	HadUntil *time.Time      // nil = the rank is still there
	Rates    []host.NodeRate // by time
}

// NodeMetrics returns what the cluster's nodes exchanged with networks and disks in [from, to), at most one rate per
// step (0: host.TelemetryStep), by rank and time. Fault: NotFound, also for clusters of other organisations.
func (vs *Views) NodeMetrics(ctx context.Context, org id.Org, cl id.Cluster, from, to time.Time,
	step time.Duration) ([]NodeMetrics, error) {
	if _, err := vs.owned(ctx, org, cl); err != nil {
		return nil, err
	}
	had, err := vs.db.Q.LeasesOfRanks(ctx, cl)
	if err != nil {
		return nil, fmt.Errorf("leases of %s: %w", cl, err)
	}
	leases := make([]id.Lease, len(had))
	for i, l := range had {
		leases[i] = l.ID
	}
	rates, err := host.NodeTelemetry(ctx, vs.db.Q, leases, from, to, step)
	if err != nil {
		return nil, err
	}
	out := make([]NodeMetrics, len(had))
	for i, l := range had {
		out[i] = NodeMetrics{Rank: int(l.Rank), Lease: l.ID, Host: l.HostID, HostName: l.HostName, HadFrom: l.HadFrom,
			HadUntil: l.HadUntil, Rates: rates[i]}
	}
	return out, nil
}
