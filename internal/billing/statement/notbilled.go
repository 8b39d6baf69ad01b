package statement

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/billing/bond"
	"github.com/musterhq/muster/internal/billing/metering"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/money"
)

// NotBilled is time in which a cluster ran and nothing was billed, because not every rank was proven up.
type NotBilled = client.NotBilled

// notBilled reads the decided suspensions of clusters, in order of time. names are those of the clusters; nil: none is
// needed.
func notBilled(ctx context.Context, q *dbq.Queries, clusters []id.Cluster,
	names map[id.Cluster]string) ([]NotBilled, error) {
	out := []NotBilled{}
	all, err := bond.Suspended(ctx, q, clusters, nil)
	if err != nil || len(all) == 0 {
		return out, err
	}
	var those []id.Cluster
	for c := range all {
		those = append(those, c)
	}
	hosts, err := bond.HostNames(ctx, q, id.Org{}, those)
	if err != nil {
		return nil, err
	}
	for c, list := range all {
		for _, s := range list {
			out = append(out, NotBilled{
				Cluster:     c,
				ClusterName: names[c],
				From:        s.From,
				To:          s.To,
				Seconds:     Seconds(s.Millis()),
				Class:       s.Class,
				Culprits:    s.Culprits,
				Why:         s.Cause(hosts(c)),
			})
		}
	}
	slices.SortFunc(out, func(a, b NotBilled) int {
		return cmp.Or(a.From.Compare(b.From), a.To.Compare(b.To), a.Cluster.Compare(b.Cluster))
	})
	return out, nil
}

// ClusterNotBilled returns what of a cluster's time was not billed. The caller has checked that it may be seen.
func (s *Statements) ClusterNotBilled(ctx context.Context, cluster id.Cluster) ([]NotBilled, error) {
	return notBilled(ctx, s.d.Q, []id.Cluster{cluster}, nil)
}

// notBilledOf reads those of the leases' clusters that began between two moments.
func notBilledOf(ctx context.Context, q *dbq.Queries, leases []metering.LeaseStatement, from,
	to time.Time) ([]NotBilled, error) {
	var clusters []id.Cluster
	for _, l := range leases {
		clusters = append(clusters, l.Cluster)
	}
	slices.SortFunc(clusters, id.Cluster.Compare)
	clusters = slices.Compact(clusters)
	rows, err := clusterNames(ctx, q, leases)
	if err != nil {
		return nil, err
	}
	names := map[id.Cluster]string{}
	for c, n := range rows {
		names[c] = n.name
	}
	out, err := notBilled(ctx, q, clusters, names)
	return slices.DeleteFunc(out, func(n NotBilled) bool { return n.From.Before(from) || !n.From.Before(to) }), err
}

// OperatorStandby is what a host received for standing by, or what the bond paid.
type OperatorStandby = client.EarningsStandby

// standby reads what the operator's hosts, or one of them, received for standing by, and what the bond paid for them.
func (p *OperatorPeriod) standby(ctx context.Context, q *dbq.Queries, r OperatorRequest, from, to time.Time) error {
	p.Standby = []OperatorStandby{}
	rows, err := q.StandbyOfOperator(ctx, dbq.StandbyOfOperatorParams{
		OrgID:    r.Org,
		Currency: r.Currency,
		FromID:   firstID(from),
		FromTime: from,
		ToTime:   to,
	})
	if err != nil {
		return fmt.Errorf("read standby of %s: %w", r.Org, err)
	}
	for _, row := range rows {
		x := OperatorStandby{
			ID:      row.ID,
			At:      row.CreatedAt.UTC(),
			Kind:    row.Kind,
			Why:     row.Memo,
			Cluster: row.Ref,
			Amount:  money.Nano(row.Amount),
		}
		// standby:VICTIM:CULPRIT:TOTAL and relief:CLUSTER:VICTIM:TOTAL
		if parts := strings.Split(row.Key, ":"); len(parts) == 4 {
			x.Lease = parts[2]
			if row.Kind == "standby" {
				x.Lease = parts[1]
			}
		}
		lease, _ := id.Parse[id.Lease](x.Lease) // zero where the key names none: no host has it
		if wanted, err := r.covers(ctx, q, lease); err != nil {
			return err
		} else if !wanted {
			continue
		}
		p.Standby = append(p.Standby, x)
		if x.Amount > 0 {
			p.StandbyReceived += x.Amount
		} else {
			p.BondPaid -= x.Amount
		}
	}
	return nil
}
