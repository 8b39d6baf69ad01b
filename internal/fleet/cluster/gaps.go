package cluster

import (
	"context"
	"fmt"
	"time"

	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/db/dbq"
)

// saveGaps writes down for which time no report of a host says that its ranks were well, once it is known when that
// time ended, and when the host's reports were missing. In the steady state there is nothing to write.
func (c *Clusters) saveGaps(ctx context.Context, s agentapi.Sync, at time.Time, all []leaseReport) error {
	var g dbq.InsertRankGapsParams
	var silent dbq.InsertSilencesParams
	for _, h := range all {
		if h.now == nil || h.row.Node.LeaseID != h.row.LeaseID {
			continue
		}
		for _, gap := range h.gaps(s.BootID, c.cfg.LostAfter) {
			g.Leases, g.Epochs = append(g.Leases, uuids(h.row.LeaseID)...), append(g.Epochs, h.row.LeaseEpoch)
			g.FromMs, g.ToMs, g.Unwell = append(g.FromMs, gap.from), append(g.ToMs, gap.to), append(g.Unwell, gap.unwell)
		}
		if before := h.row.NodeStatus.ReportedAt; h.row.Node.StartedAt != nil && at.Sub(before) > c.cfg.LostAfter &&
			len(silent.Hosts) == 0 {
			silent.Hosts, silent.Kinds = uuids(h.row.Node.HostID), []string{"missing"}
			silent.FromMs, silent.ToMs = []int64{before.UnixMilli()}, []int64{at.UnixMilli()}
		}
	}
	if len(g.Leases) > 0 {
		if err := c.db.Q.InsertRankGaps(ctx, g); err != nil {
			return fmt.Errorf("gaps in what hosts attest: %w", err)
		}
	}
	if len(silent.Hosts) > 0 {
		if err := c.db.Q.InsertSilences(ctx, silent); err != nil {
			return fmt.Errorf("silence of a host: %w", err)
		}
	}
	return nil
}

type rankGap struct {
	from, to int64 // unix ms
	unwell   bool
}

// gaps are the times without attestation that end with this report.
func (h leaseReport) gaps(boot string, lostAfter time.Duration) (out []rankGap) {
	good, st := h.goodMS, h.row.NodeStatus
	if good == 0 && h.now != nil && h.now.ExitCode != nil && h.row.Node.StartedAt != nil {
		good = h.exit.UnixMilli() // an exit says that the command ran until then, and no more than a good report would
	}
	if good == 0 || st.LastGoodMs == 0 || good <= st.LastGoodMs {
		return nil
	}
	to := good
	if st.Epoch != h.row.LeaseEpoch || h.row.Node.StartedAt == nil { // a new start: attested from where it began
		to = min(good, h.from.UnixMilli())
	}
	if !h.good.IsZero() { // the report attests all time since then
		to = min(to, h.good.UnixMilli())
	}
	if to <= st.LastGoodMs {
		return nil
	}
	missing := !st.Good || st.BootID != boot || good-st.LastGoodMs > lostAfter.Milliseconds() || to != good
	if missing {
		out = append(out, rankGap{from: st.LastGoodMs, to: to})
	}
	if since := st.UnwellSinceMs; !st.Good && since != nil && *since < to {
		out = append(out, rankGap{from: *since, to: to, unwell: true})
	}
	return out
}

// DropOldFacts removes strikes and silences of more than 90 days ago and bans that are over. It says how many it
// removed.
func (c *Clusters) DropOldFacts(ctx context.Context) (n int64, err error) {
	for _, drop := range []func(context.Context) (int64, error){c.db.Q.DropOldStrikes, c.db.Q.DropOldSilences,
		c.db.Q.DropOldBans} {
		dropped, err := drop(ctx)
		if err != nil {
			return n, fmt.Errorf("old facts about gangs: %w", err)
		}
		n += dropped
	}
	return n, nil
}
