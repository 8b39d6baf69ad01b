package cluster

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/musterhq/muster/internal/billing/fairness"
	"github.com/musterhq/muster/internal/billing/metering"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/fleet/cluster/lifecycle"
	"github.com/musterhq/muster/internal/fleet/market"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/interval"
	"github.com/musterhq/muster/internal/money"
)

// A start is free until every rank runs. To keep an organisation from holding GPUs for nothing again and again, this
// file counts for how long its starts held theirs, and fairness.StartRules limits it.

// startFacts is what a rent reads about starts, under the lock of the organisation's wallet, so that simultaneous rents
// of an organisation see each other.
type startFacts struct {
	own fairness.StartFacts
	// sizes and taken are the GPUs of the market by model, and those that starts hold which no payment covers, of all
	// organisations. Two rents of different organisations do not see each other in taken: they may go beyond the limit by
	// what they rent at the same moment.
	sizes, taken map[string]int64
}

// modelSizes returns how many GPUs of each model the market has, if that limits starts.
func (c *Clusters) modelSizes(ctx context.Context) (map[string]int64, error) {
	if c.cfg.Starts.Window == 0 {
		return nil, nil
	}
	return c.market.ModelSizes(ctx)
}

// queueStarts queues the reads of startFacts.
func (l *lockedRental) queueStarts(b *pgx.Batch) {
	rules := l.c.cfg.Starts
	if rules.Window == 0 {
		return
	}
	seconds := int64(rules.Window.Seconds())
	db.Queue(b, func(ctx context.Context, q *dbq.Queries) error {
		rows, err := q.OpenStarts(ctx, l.principal.Org)
		for _, r := range rows {
			l.starts.own.Open = append(l.starts.own.Open,
				fairness.OpenStart{SinceMS: r.StartFrom.UnixMilli(), GPUs: int(r.Gpus), Rate: r.Rate})
		}
		return err
	})
	db.Queue(b, func(ctx context.Context, q *dbq.Queries) error {
		rows, err := q.HeldStarts(ctx, l.principal.Org, seconds)
		for _, r := range rows {
			l.starts.own.Held = append(l.starts.own.Held,
				fairness.HeldStart{EndedMS: r.EndedAt.UnixMilli(), GPUMillis: r.GPUMs, Value: money.Nano(r.Value)})
		}
		return err
	})
	db.Queue(b, func(ctx context.Context, q *dbq.Queries) error {
		r, err := q.PaidLately(ctx, seconds, id.UUIDs(l.principal.Org)[0], l.c.cfg.Currency)
		l.starts.own.Paid = rules.Paid(money.Nano(r.Lately), money.Nano(r.Week))
		return err
	})
	db.Queue(b, func(ctx context.Context, q *dbq.Queries) error {
		rows, err := q.NewStarts(ctx)
		l.starts.taken = make(map[string]int64, len(rows))
		for _, r := range rows {
			l.starts.taken[r.GPUModel] = r.Gpus
		}
		return err
	})
}

// judgeStart decides whether the organisation may start a placement now, and whether what it paid covers the start.
func (l *lockedRental) judgeStart(p market.Placement) (covered bool, err error) {
	if err := l.money.Owed().Admit(l.now, l.c.cfg.Currency); err != nil {
		return false, err
	}
	rules := l.c.cfg.Starts
	v := rules.Judge(l.starts.own, p.Rate, l.now.UnixMilli())
	if !v.OK {
		return false, errStartQuota(rules, l.starts.own, v, l.now)
	}
	if v.Covered {
		return true, nil
	}
	want := map[string]int64{}
	for _, n := range p.Nodes {
		want[n.Model] += int64(len(n.GPUs))
	}
	for model, n := range want {
		if room := rules.Room(l.starts.sizes[model], l.starts.taken[model]); n > room {
			return false, errNewStarts(model, room, l.now)
		}
	}
	return false, nil
}

// errStartQuota returns the fault for an organisation whose starts, those that ended and those under way, hold too many
// GPUs without paying.
func errStartQuota(r fairness.StartRules, f fairness.StartFacts, v fairness.StartVerdict, now time.Time) error {
	at := time.UnixMilli(v.FreeMS).UTC()
	out := fault.New(fault.RateLimited, "Your clusters held GPUs for %d GPU-seconds in the last %s before they ran, "+
		"or without ever running. That is not billed: %d GPU-seconds are free; more has to be worth less than what you "+
		"paid for running clusters (%s of %s). You can start again at %s UTC, or sooner if you have paid more by then. "+
		"Check image, registry and command.", v.GPUMillis/1000, hours(r.Window), r.Free, v.Value.Plain(), f.Paid.Plain(),
		at.Format("15:04:05"))
	out.RetryAfter = at.Sub(now)
	out.Extra = map[string]any{"limit": "start_quota", "free_at": at, "window_s": int64(r.Window.Seconds()),
		"held_gpu_s": v.GPUMillis / 1000, "free_gpu_s": r.Free, "held_value": v.Value, "paid": f.Paid}
	return out
}

// errNewStarts returns the fault for a start that no payment covers, while such starts of all organisations hold their
// part of the market. room is how many GPUs of the model it could get.
func errNewStarts(model string, room int64, now time.Time) error {
	const again = 2 * time.Minute
	f := fault.New(fault.RateLimited, "Organisations that have not yet paid for as much time as their starts take may "+
		"together start only a part of all GPUs of a model at the same time. Of %s, %d GPUs can be started so now. Rent "+
		"fewer GPUs, or try again in two minutes; what you pay for a running cluster raises your own limit.", model, room)
	f.RetryAfter = again
	f.Extra = map[string]any{"limit": "start_quota", "scope": "new_organisations", "gpu_model": model, "free_gpus": room,
		"free_at": now.Add(again).UTC()}
	return f
}

// hours returns a duration for people.
func hours(d time.Duration) string {
	if h := d.Hours(); h == float64(int64(h)) && h > 1 {
		return fmt.Sprintf("%d hours", int64(h))
	}
	return d.String()
}

// endedStart is a row of start_hold. rest is what counts if excusedBy has excused another start lately.
type endedStart struct {
	row       dbq.InsertStartHoldParams
	excusedBy id.Org
	rest      struct{ gpuMS, value int64 }
}

// startEnds records for how long the start under way held its GPUs. It ran if r is empty, and failed for r otherwise.
func (x *lockedCluster) startEnds(at time.Time, r lifecycle.Reason) {
	from := x.row.StartFrom
	x.row.StartFrom = nil
	if from == nil || x.row.StartDeadline == nil { // without a deadline it has ended: a server before this rule let it run
		return
	}
	span := interval.Span{Start: from.UnixMilli(), End: latest(*from, earliest(at, x.now)).UnixMilli()}
	var gpus, deaf, size int64
	for _, n := range x.nodes {
		gpus += int64(len(n.gpus))
		deaf = max(deaf, x.deaf(n).Clip(span).Len())
		if n.status.Epoch == n.Epoch {
			size = max(size, n.status.ImageBytes)
		}
	}
	if !x.cfg.knownRegistry(x.row.ImageRef) {
		size = 0
	}
	ms := fairness.StartCounts(span.Len(), deaf, size)
	if r == lifecycle.ReasonPlatformOutage {
		ms = 0
	}
	value := func(of int64) int64 { return int64(fairness.StartValue(x.row.Rate, ms)) * of / max(1, gpus) }
	e := endedStart{row: dbq.InsertStartHoldParams{
		OrgID: x.row.OrgID, ClusterID: x.row.ID, EndedAt: time.UnixMilli(span.End), HeldMs: span.Len() * gpus,
		GPUMs: ms * gpus, Value: value(gpus), Reason: string(r),
	}}
	if e.excusedBy = x.failedStart(r); !e.excusedBy.IsZero() {
		rest := gpus
		if !metering.Inducible(string(r)) {
			rest -= x.gpusOf(e.excusedBy)
		}
		e.rest.gpuMS, e.rest.value = ms*rest, value(rest)
	}
	x.startsEnded = append(x.startsEnded, e)
}

// failedStart returns the operator to blame for a start that failed: its host reported a failure of its own, fell
// silent, or did not start its rank with the others. Zero: none is proven to be.
func (x *lockedCluster) failedStart(r lifecycle.Reason) id.Org {
	for _, n := range x.nodes {
		s := lifecycle.NodeState(n.State)
		switch {
		case !n.required || x.deafNow(n):
		case hostsOwn(r) && (s == lifecycle.NodeFailed || s == lifecycle.NodeLost) &&
			lifecycle.Reason(n.Reason).OfCluster() == r,
			r == lifecycle.ReasonTimeout && x.row.GoAt != nil && n.StartedAt == nil:
			return n.operator
		}
	}
	return id.Org{}
}

// hostsOwn reports whether a start that fails for this reason fails by a host's doing.
func hostsOwn(r lifecycle.Reason) bool {
	return r.IsHostFault() || r == lifecycle.ReasonNotOffered || r == lifecycle.ReasonNoDisk ||
		r == lifecycle.ReasonHostWithdrawn
}

// gpusOf counts the cluster's GPUs on an operator's hosts.
func (x *lockedCluster) gpusOf(operator id.Org) (n int64) {
	for _, m := range x.nodes {
		if m.operator == operator {
			n += int64(len(m.gpus))
		}
	}
	return n
}

// queueStartsEnded queues the writes of the starts that ended.
func (x *lockedCluster) queueStartsEnded(b *pgx.Batch) {
	for _, e := range x.startsEnded {
		if e.excusedBy.IsZero() {
			db.Write(b, (*dbq.Queries).InsertStartHold, e.row)
			continue
		}
		db.Write(b, (*dbq.Queries).InsertExcusedStart, dbq.InsertExcusedStartParams{
			OrgID: e.row.OrgID, ClusterID: e.row.ClusterID, EndedAt: e.row.EndedAt, HeldMs: e.row.HeldMs, GPUMs: e.rest.gpuMS,
			Value: e.rest.value, Reason: e.row.Reason, ExcusedBy: id.UUIDs(e.excusedBy)[0],
			Since: e.row.EndedAt.Add(-fairness.StartExcuse),
		})
	}
}

// knownRegistry reports whether an image is in a registry that no renter runs or slows down. An entry that begins with
// a dot stands for all names that end with it.
func (c *Config) knownRegistry(image string) bool {
	r := market.Registry(image)
	return slices.ContainsFunc(c.KnownRegistries, func(known string) bool {
		return r == known || strings.HasPrefix(known, ".") && strings.HasSuffix(r, known)
	})
}
