package hostlink

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5/pgtype"
	"github.com/nats-io/nats.go"

	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/bus"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/fleet/host"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/metrics"
)

// When an agent should sync next, milliseconds; it jitters the idle one itself.
const (
	leasedSyncMS = 15_000
	idleSyncMS   = 60_000
)

// handleSync answers one report. Each part is committed and acknowledged by itself: what fails is logged, stays
// unacknowledged, and comes again.
func (l *Link) handleSync(ctx context.Context, h id.Host, m *nats.Msg) {
	began := time.Now()
	var s agentapi.Sync
	err := read(m, &s)
	if err == nil {
		err = checkSync(&s)
	}
	if err != nil {
		metrics.HostSyncRefused()
		l.log.Warn("a host's sync is refused", "host", h, "err", err)
		l.answer(h, m, agentapi.SyncReply{Protocol: agentapi.Protocol, Error: err.Error(), ControlEpoch: l.epoch.Load()})
		return
	}
	r := agentapi.SyncReply{
		Protocol:      agentapi.Protocol,
		ControlEpoch:  l.epoch.Load(),
		NextSyncMS:    idleSyncMS,
		TelemetryLost: l.limits.refused(h, "telemetry"),
	}
	var failed []string
	defer func() { metrics.HostSync(began, failed) }()
	fail := func(what string, err error) {
		if err != nil {
			failed = append(failed, what)
			l.log.Error("part of a sync failed", "host", h, "part", what, "err", err)
		}
	}
	if len(s.Leases) > 0 {
		r.NextSyncMS = leasedSyncMS
	}
	// First: an anchor is late by all that lies between the report and it.
	r.Anchor, err = l.metering.IssueAnchor(ctx, l.db.Q, h, s.BootID, s.BootMS)
	fail("time anchor", err)
	err = nil
	if len(s.Segments) > 0 { // before the statuses: once nothing of a cluster is left it is settled
		r.UsageAcks, err = l.metering.Ingest(ctx, h, s.Segments, s.SegmentsSignature)
		fail("usage", err)
	}
	if err == nil || !anyDeaf(s.Segments) { // else the statuses would attest time in which the host was deaf
		fail("status", l.takeStatus(ctx, h, s, &r))
	}
	if len(s.Leases) == 0 {
		fail("popular images", l.addPopular(ctx, h, s, &r)) // after what it has pulled so far was taken
	}
	if len(s.Health) > 0 {
		fail("health", l.takeHealth(ctx, h, s, &r))
	}
	fail("desired state", l.addDesired(ctx, h, s, &r))
	r.Update, err = host.TakeAgent(ctx, l.db, h, s)
	fail("agent", err)
	l.answer(h, m, r)
}

// anyDeaf reports whether one of the segments says that its host did not hear another rank.
func anyDeaf(segs []agentapi.Segment) bool {
	return slices.ContainsFunc(segs, func(s agentapi.Segment) bool { return s.Facts != nil && len(s.Facts.Deaf) > 0 })
}

// takeStatus commits what the host says of itself and its leases.
func (l *Link) takeStatus(ctx context.Context, h id.Host, s agentapi.Sync, r *agentapi.SyncReply) error {
	if s.ControlEpoch != l.epoch.Load() {
		s.Revision = 0 // it counts revisions of another history of the database: the host knows nothing of this one's
	}
	var report host.Report
	own := s
	err := l.db.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		var err error
		if report, err = host.RecordSync(ctx, tx, h, s); err != nil {
			return err
		}
		if own.Leases, err = l.ownLeases(ctx, tx, h, s.Leases); err != nil {
			return err
		}
		if err = host.RecordTraffic(ctx, tx, h, own.Leases); err != nil {
			return err
		}
		return host.RecordPulls(ctx, tx, h, s.Pulled)
	})
	if err != nil {
		return err
	}
	if report.EngineAway != "" { // once a day
		l.bus.Changed(bus.TopicHost(h))
		l.alert(ctx, h, "host.engine_away", "A host's container engine does not answer",
			"The host gets no new leases and comes back by itself once its engine answers and nothing is left of ended leases. "+
				"What runs there without live-restore ends as the host's fault. Look at it with systemctl status docker. The "+
				"agent says: "+report.EngineAway)
	}
	if s.Full {
		l.bus.Changed(bus.TopicHost(h))
		if s.Protocol < agentapi.OldestRented { // once a day; an agent that can replace itself is told with the answer, too
			l.alert(ctx, h, "host.agent_too_old", "An agent is too old for new leases",
				fmt.Sprintf("The agent of this host (%.40s) speaks protocol %d; new leases need %d or newer. It keeps the "+
					"leases it has, and is paid for them. "+
					"Update it: run install-agent.sh with a newer archive, or let the platform do it (muster host set NAME "+
					"--agent-channel stable).",
					s.AgentVersion, s.Protocol, agentapi.OldestRented))
		}
	}
	if s.Full || len(own.Leases) > 0 || len(report.Gone) > 0 {
		if err := l.clusters.ApplyReport(ctx, h, own, report.Gone); err != nil {
			return err
		}
	}
	r.StatusAck = s.Seq
	return nil
}

// addPopular names popular images to a host with nothing to do, unless its line has no data left for them. An agent
// that does not keep to a bound is named none where there is one.
func (l *Link) addPopular(ctx context.Context, h id.Host, s agentapi.Sync, r *agentapi.SyncReply) error {
	popular, err := l.offers.Popular(ctx)
	if err != nil || len(popular) == 0 {
		return err
	}
	left, bounded, err := host.DataForPopular(ctx, l.db.Q, h)
	if err != nil {
		return err
	}
	switch {
	case !bounded:
		r.Popular = popular
	case left > 0 && slices.Contains(s.Capabilities, agentapi.CapPopularBound):
		r.Popular, r.PopularBytes = popular, left
	}
	return nil
}

// ownLeases leaves out what is not this host's: leftovers of another life of the machine, or a lie.
func (l *Link) ownLeases(ctx context.Context, tx *db.Tx, h id.Host,
	all []agentapi.LeaseStatus) ([]agentapi.LeaseStatus, error) {
	if len(all) == 0 {
		return nil, nil
	}
	mine, err := tx.Q.OwnLeases(ctx, h, leaseIDs(all))
	if err != nil {
		return nil, fmt.Errorf("hostlink: leases of %s: %w", h, err)
	}
	var own []agentapi.LeaseStatus
	for _, s := range all {
		v, _ := id.Parse[id.Lease](s.Lease) // checkSync has parsed it
		if slices.Contains(mine, v) {
			own = append(own, s)
		} else {
			l.log.Warn("a host reports a lease that is not its own: left out", "host", h, "lease", v, "state", s.State)
		}
	}
	return own, nil
}

func (l *Link) takeHealth(ctx context.Context, h id.Host, s agentapi.Sync, r *agentapi.SyncReply) error {
	var seq uint64
	err := l.db.InTx(ctx, func(ctx context.Context, tx *db.Tx) (err error) {
		seq, err = host.RecordHealth(ctx, tx, h, s)
		tx.AfterCommit(func() { l.bus.Changed(bus.TopicHost(h)) })
		return err
	})
	if err == nil {
		r.HealthAck = seq
	}
	return err
}

// addDesired fills in what the host must know: until when its leases may run, which logs are stored, and, when it is
// newer than what the host has seen, what to run.
func (l *Link) addDesired(ctx context.Context, h id.Host, s agentapi.Sync, r *agentapi.SyncReply) error {
	return l.db.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		at, err := tx.Q.LinkHostRevision(ctx, h)
		if err != nil {
			return fmt.Errorf("hostlink: revision of %s: %w", h, err)
		}
		r.Revision, r.ControlEpoch = at.Revision, at.ControlEpoch
		l.epoch.Store(at.ControlEpoch)
		if r.Extensions, err = l.metering.Extensions(ctx, tx.Q, h); err != nil {
			return err
		}
		if err = l.clusters.RenewRelays(ctx, tx, h, r.Extensions); err != nil {
			return err
		}
		if r.LogsStored, err = storedLogs(ctx, tx, h, s.Leases); err != nil {
			return err
		}
		switch {
		case s.ControlEpoch > r.ControlEpoch, s.ControlEpoch == r.ControlEpoch && s.Revision > r.Revision:
			// The database is older than what it has told this host before: a restore lost commits. The host keeps
			// what it runs until an operator confirms the database with a higher control epoch.
			l.log.Error("a host has seen a newer desired state than the database holds",
				"host", h, "seen", s.Revision, "revision", r.Revision, "seen_epoch", s.ControlEpoch, "epoch", r.ControlEpoch)
			return nil
		case s.ControlEpoch == r.ControlEpoch && s.Revision == r.Revision:
			return nil
		}
		d, err := l.clusters.Desired(ctx, tx, h)
		if err != nil {
			return err
		}
		d.ControlEpoch = r.ControlEpoch
		r.Desired, r.Revision = &d, d.Revision
		return nil
	})
}

func storedLogs(ctx context.Context, tx *db.Tx, h id.Host, all []agentapi.LeaseStatus) ([]agentapi.LeaseRef, error) {
	kept := map[agentapi.LeaseRef]bool{}
	var ask []agentapi.LeaseStatus
	for _, s := range all {
		if s.LogKept {
			kept[s.LeaseRef] = true
			ask = append(ask, s)
		}
	}
	if len(ask) == 0 {
		return nil, nil
	}
	rows, err := tx.Q.LinkStoredLogs(ctx, h, leaseIDs(ask))
	if err != nil {
		return nil, fmt.Errorf("hostlink: stored logs of %s: %w", h, err)
	}
	var out []agentapi.LeaseRef
	for _, r := range rows {
		if ref := (agentapi.LeaseRef{Lease: r.ID.String(), Epoch: int(r.Epoch)}); kept[ref] {
			out = append(out, ref)
		}
	}
	return out, nil
}

func leaseIDs(all []agentapi.LeaseStatus) []pgtype.UUID {
	var out []pgtype.UUID
	for _, s := range all {
		if v, err := id.Parse[id.Lease](s.Lease); err == nil {
			out = append(out, pgtype.UUID{Bytes: v.UUID(), Valid: true})
		}
	}
	return out
}

// handleInventory takes in what a host has.
func (l *Link) handleInventory(ctx context.Context, h id.Host, m *nats.Msg) {
	var inv agentapi.Inventory
	err := read(m, &inv)
	if err == nil {
		// What cannot be reached straight is reached through a relay, by an agent that takes renewals: one that does not
		// would lose its relay in the middle of a lease.
		inv.MultiNode = inv.MultiNode || (len(l.cfg.Relays) > 0 && inv.Relayed &&
			slices.Contains(inv.Capabilities, agentapi.CapRelayRenewal))
		err = l.db.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
			if err := host.RecordInventory(ctx, tx, h, inv); err != nil {
				return err
			}
			return l.offers.SyncOffers(ctx, tx, h)
		})
	}
	var ack agentapi.Ack
	switch f := fault.From(err); {
	case err == nil:
		l.recorder.forget(h)
		l.bus.Changed(bus.TopicHost(h))
	case f != nil:
		ack.Error = f.Message
	case err == errMalformed:
		ack.Error = err.Error()
	default:
		ack.Error = "the inventory could not be stored: try again"
	}
	if err != nil {
		l.log.Warn("inventory not taken", "host", h, "err", err)
	}
	l.answer(h, m, ack)
}
