package statement

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/billing/metering"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/id"
)

// Usage is what a cluster used and costs, as the REST API shows it.
type Usage = client.Usage

// UsageCredit is what was given back for a node whose host failed.
type UsageCredit = client.Credit

// Seconds are milliseconds shown as decimal seconds, "300.000".
type Seconds = client.Seconds

// UsageSegment is one line of a statement: one signed segment at one price.
type UsageSegment = client.Segment

// ShortUsage is ClusterUsage for pages that itemise several clusters. It returns no usage, and false, of a cluster with
// more than most segments, and then it reads none of them.
func (s *Statements) ShortUsage(ctx context.Context, cluster id.Cluster, most int) (u Usage, short bool, err error) {
	n, err := s.d.Q.CountSegmentsOfCluster(ctx, cluster, int32(most)+1)
	if err != nil {
		return u, false, fmt.Errorf("count segments of %s: %w", cluster, err)
	}
	if n > int64(most) {
		return u, false, nil
	}
	u, err = s.ClusterUsage(ctx, cluster)
	return u, true, err
}

// ClusterUsage returns the cluster's statement. The caller has checked that it may be seen.
func (s *Statements) ClusterUsage(ctx context.Context, cluster id.Cluster) (Usage, error) {
	m, err := metering.ClusterUsage(ctx, s.d.Q, cluster)
	if err != nil {
		return Usage{}, err
	}
	u := Usage{
		BillableSeconds: Seconds(m.BillableMS), GPUSeconds: Seconds(m.GPUMS), Cost: m.Cost, Posted: m.Posted,
		CostSoFar: max(m.Cost, m.Estimate), EnergyWh: wattHours(m.EnergyMJ), Settled: m.Settled, Currency: m.Currency,
		Segments: make([]UsageSegment, len(m.Lines)),
	}
	credits, err := metering.Credits(ctx, s.d.Q, cluster)
	if err != nil {
		return Usage{}, err
	}
	u.Credits = make([]UsageCredit, len(credits))
	for i, c := range credits {
		u.Credits[i] = UsageCredit{
			Rank:     c.Rank,
			Lease:    c.Lease,
			HostID:   c.Host,
			HostName: c.HostName,
			Reason:   c.Reason,
			From:     c.From,
			To:       c.To,
			Amount:   c.Amount,
		}
		u.Credited += c.Amount
	}
	if u.NotBilled, err = notBilled(ctx, s.d.Q, []id.Cluster{cluster}, nil); err != nil {
		return Usage{}, err
	}
	names, err := hostNames(ctx, s.d.Q, m.Lines)
	if err != nil {
		return Usage{}, err
	}
	for i, l := range m.Lines {
		u.Segments[i] = UsageSegment{
			Rank:         l.Rank,
			Lease:        l.Lease,
			HostID:       l.Host,
			HostName:     names[l.Host],
			Epoch:        l.Epoch,
			Seq:          l.Seq,
			From:         l.From,
			To:           l.To,
			Seconds:      Seconds(l.MS),
			GPUs:         l.GPUs,
			PricePerHour: l.Rate,
			Cost:         l.Cost,
		}
	}
	return u, nil
}

// hostNames returns the names of the lines' hosts.
func hostNames(ctx context.Context, q *dbq.Queries, lines []metering.UsageLine) (map[id.Host]string, error) {
	ids := make([]id.Host, len(lines))
	for i, l := range lines {
		ids[i] = l.Host
	}
	return namesOf(ctx, q, ids)
}

// namesOf returns the names of hosts, each of which may be named often.
func namesOf(ctx context.Context, q *dbq.Queries, ids []id.Host) (map[id.Host]string, error) {
	seen := map[id.Host]bool{}
	var hosts []pgtype.UUID
	for _, h := range ids {
		if !seen[h] {
			seen[h] = true
			hosts = append(hosts, pgtype.UUID{Bytes: h.UUID(), Valid: true})
		}
	}
	rows, err := q.HostNames(ctx, hosts)
	if err != nil {
		return nil, fmt.Errorf("read names of hosts: %w", err)
	}
	names := make(map[id.Host]string, len(rows))
	for _, r := range rows {
		names[r.ID] = r.Name
	}
	return names, nil
}

// wattHours returns millijoules as decimal watt-hours, to the milliwatt-hour below: 1 Wh = 3.6e6 mJ × 1,000.
func wattHours(mJ int64) string {
	mwh := mJ / 3600
	return fmt.Sprintf("%d.%03d", mwh/1000, mwh%1000)
}
