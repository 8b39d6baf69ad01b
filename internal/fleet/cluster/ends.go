package cluster

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/billing/budget"
	"github.com/musterhq/muster/internal/billing/ledger"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/fleet/cluster/lifecycle"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/money"
)

// stop is when a cluster stops unless something changes before, and what stops it. Its zero value means that nothing
// is known to stop it.
type stop struct {
	at    time.Time
	cause client.StopCause
}

// sooner returns the earlier one of two stops.
func (s stop) sooner(at time.Time, cause client.StopCause) stop {
	if at.IsZero() || !s.at.IsZero() && !at.Before(s.at) {
		return s
	}
	return stop{at.UTC(), cause}
}

// means is what an organisation has and spends.
type means struct {
	now     time.Time
	wallet  money.Nano
	burn    map[string]money.Micro // per hour, by project
	budgets []budget.Budget
}

// queueMeans queues the read of the means of an organisation.
func queueMeans(b *pgx.Batch, m *means, org id.Org, currency string) {
	db.Queue(b, func(ctx context.Context, q *dbq.Queries) error {
		row, err := q.OrgBurn(ctx, org)
		if err != nil {
			return fmt.Errorf("burn of %s: %w", org, err)
		}
		m.now, m.burn = row.Now.UTC(), make(map[string]money.Micro, len(row.Projects))
		for i, p := range row.Projects {
			m.burn[p] = money.Micro(row.Rates[i])
		}
		return nil
	})
	db.Queue(b, func(ctx context.Context, q *dbq.Queries) error {
		wallet, err := ledger.Spendable(ctx, q, ledger.Wallet(org, currency))
		if err == nil {
			m.wallet = wallet
		}
		return err
	})
	db.Queue(b, func(ctx context.Context, q *dbq.Queries) error {
		budgets, err := budget.List(ctx, q, org)
		if err == nil {
			m.budgets = budgets
		}
		return err
	})
}

// readMeans reads the means of an organisation in one round trip.
func readMeans(ctx context.Context, q *dbq.Queries, org id.Org, currency string) (m means, err error) {
	b := &pgx.Batch{}
	queueMeans(b, &m, org, currency)
	return m, db.Send(ctx, q, b)
}

// rate returns what the clusters that count against a project's budget cost per hour; "" is the whole organisation.
func (m means) rate(project string) (rate money.Micro) {
	for p, r := range m.burn {
		if project == "" || p == project {
			rate += r
		}
	}
	return rate
}

// standing is what decides when a cluster stops.
type standing struct {
	row     dbq.Cluster
	means   means
	cost    money.Nano // so far, of a cluster with a budget of its own
	reclaim time.Time  // when hosts are taken back without which the cluster ends; zero: none is
}

// farthest is how far ahead a stop is known: money that lasts for longer stops nothing.
const farthest = 366 * 24 * time.Hour

// next returns the next stop of a cluster that has not ended. Every page, answer and notice gets it from here.
func (s standing) next() stop {
	out := s.moneyEnds().sooner(deref(s.row.StartDeadline), client.StopStart).sooner(s.reclaim, client.StopReclaim)
	if lifecycle.State(s.row.State) == lifecycle.Degraded {
		out = out.sooner(deref(s.row.ReplaceUntil), client.StopReplacement)
	}
	return out
}

// moneyEnds returns when money, budgets or the longest duration stop the cluster. What is held for it carries it to
// run_until at least. Beyond that, the wallet and the budgets of organisation and project are shared with other
// clusters, so they last as long as what all of those cost together allows.
func (s standing) moneyEnds() (out stop) {
	r, now := s.row, s.means.now
	if end := notAfter(now, r.RunningAt, r.MaxDurationS); end != nil && r.RunningAt != nil {
		out = out.sooner(*end, client.StopDuration)
	}
	if r.RunUntil == nil {
		return out
	}
	paid := latest(*r.RunUntil, now)
	for _, b := range s.means.budgets {
		if b.Project != "" && b.Project != r.Project || b.Currency != r.Currency {
			continue
		}
		if end := notAfter(now, r.RunningAt, b.MaxDuration); end != nil && r.RunningAt != nil {
			out = out.sooner(*end, client.StopDuration)
		}
		if left := b.Left(); left != nil {
			out = out.sooner(lasts(paid, *left, max(r.Rate, s.means.rate(b.Project))), client.StopOrgBudget)
		}
	}
	if r.Budget != nil {
		out = out.sooner(latest(*r.RunUntil, lasts(now, *r.Budget-s.cost, r.Rate)), client.StopBudget)
	}
	return out.sooner(lasts(paid, s.means.wallet, max(r.Rate, s.means.rate(""))), client.StopFunds)
}

// lasts returns when an amount is spent at a rate from a moment on; zero: not within sight.
func lasts(from time.Time, amount money.Nano, rate money.Micro) time.Time {
	if rate <= 0 {
		return time.Time{}
	}
	ms := money.MillisOf(max(0, amount), rate)
	if ms > farthest.Milliseconds() {
		return time.Time{}
	}
	return from.Add(time.Duration(ms) * time.Millisecond)
}

// reclaimed returns when hosts are taken back without which the cluster ends, from the times of its required nodes
// (zero: the host stays).
func reclaimed(onFailure string, nodes []time.Time) (at time.Time) {
	switch onFailure {
	case "replace": // other hosts take the ranks
		return time.Time{}
	case "ignore":
		if slices.ContainsFunc(nodes, time.Time.IsZero) {
			return time.Time{} // the others go on
		}
		for _, t := range nodes {
			at = latest(at, t)
		}
		return at
	}
	var first stop
	for _, t := range nodes {
		first = first.sooner(t, client.StopReclaim)
	}
	return first.at
}

// nextStop returns when a cluster of the page stops next.
func (p page) nextStop(r dbq.Cluster, v Cluster) stop {
	var back []time.Time
	for _, n := range p.nodes[r.ID] {
		if n.Required {
			back = append(back, deref(n.ReclaimAt))
		}
	}
	s := standing{row: r, means: p.means, cost: v.CostSoFar, reclaim: reclaimed(v.Spec.OnNodeFailure, back)}
	return s.next()
}

// stopsAt sets when the cluster stops if that is sooner than what it shows already.
func (v *Cluster) stopsAt(s stop) {
	if s = (stop{deref(v.StopsAt), v.StopsBecause}).sooner(s.at, s.cause); !s.at.IsZero() {
		v.StopsAt, v.StopsBecause = &s.at, s.cause
	}
}
