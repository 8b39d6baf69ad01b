package cluster

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/musterhq/muster/internal/billing/fairness"
	"github.com/musterhq/muster/internal/billing/metering"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/fleet/cluster/lifecycle"
	"github.com/musterhq/muster/internal/fleet/market"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/interval"
)

// A start is free until every rank runs. To keep an organisation from holding GPUs for nothing again and again, this
// file counts for how long its starts held theirs; market.Starts and fairness.StartRules limit it.

// modelSizes returns how many GPUs of each model the market has, if that limits starts.
func (rs *Rentals) modelSizes(ctx context.Context) (map[string]int64, error) {
	if rs.cfg.Starts.Window == 0 {
		return nil, nil
	}
	return rs.market.ModelSizes(ctx)
}

// endedStart is a row of start_hold. rest is what counts if excusedBy has excused another start lately.
type endedStart struct {
	row       dbq.InsertStartHoldParams
	excusedBy id.Org
	rest      struct{ gpuMS, value int64 }
}

// startEnds records for how long the start under way held its GPUs. It ran if r is empty, and failed for r otherwise.
func (lf *life) startEnds(at time.Time, r lifecycle.Reason) {
	from := lf.row.StartFrom
	lf.row.StartFrom = nil
	// Without a deadline it has ended: a server before this rule let it run.
	if from == nil || lf.row.StartDeadline == nil {
		return
	}
	span := interval.Span{Start: from.UnixMilli(), End: latest(*from, earliest(at, lf.now)).UnixMilli()}
	var gpus, deaf, size int64
	for _, n := range lf.members.nodes {
		gpus += int64(len(n.gpus))
		deaf = max(deaf, lf.members.deaf(n).Clip(span).Len())
		if n.status.Epoch == n.Epoch {
			size = max(size, n.status.ImageBytes)
		}
	}
	if !lf.cfg.knownRegistry(lf.row.ImageRef) {
		size = 0
	}
	ms := fairness.StartCounts(span.Len(), deaf, size)
	if r == lifecycle.ReasonPlatformOutage {
		ms = 0
	}
	value := func(of int64) int64 { return int64(fairness.StartValue(lf.row.Rate, ms)) * of / max(1, gpus) }
	e := endedStart{row: dbq.InsertStartHoldParams{
		OrgID: lf.row.OrgID, ClusterID: lf.row.ID, EndedAt: time.UnixMilli(span.End), HeldMs: span.Len() * gpus,
		GPUMs: ms * gpus, Value: value(gpus), Reason: string(r),
	}}
	if e.excusedBy = lf.members.failedStart(r); !e.excusedBy.IsZero() {
		rest := gpus
		if !metering.Inducible(string(r)) {
			rest -= lf.members.gpusOf(e.excusedBy)
		}
		e.rest.gpuMS, e.rest.value = ms*rest, value(rest)
	}
	lf.out.startsEnded = append(lf.out.startsEnded, e)
}

// hostsOwn reports whether a start that fails for this reason fails by a host's doing.
func hostsOwn(r lifecycle.Reason) bool {
	return r.IsHostFault() || r == lifecycle.ReasonNotOffered || r == lifecycle.ReasonNoDisk ||
		r == lifecycle.ReasonHostWithdrawn
}

// queueStartsEnded queues the writes of the starts that ended.
func (x *lockedCluster) queueStartsEnded(b *pgx.Batch) {
	for _, e := range x.out.startsEnded {
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
