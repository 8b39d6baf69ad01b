package hostlink

import (
	"context"
	"slices"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/bus"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/metrics"
)

// When an agent should sync next, milliseconds; it jitters the idle one itself.
const (
	leasedSyncMS = 15_000
	idleSyncMS   = 60_000
)

// handleSync answers one report of a host.
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
	reply, failed := l.sync(ctx, h, s)
	metrics.HostSync(began, failed)
	l.answer(h, m, reply)
}

// sync stores what a host reports and returns what it has to know. Each part is committed and acknowledged by itself: a
// part that fails is logged, stays unacknowledged, and is sent again. failed names those parts.
func (l *Link) sync(ctx context.Context, h id.Host, s agentapi.Sync) (r agentapi.SyncReply, failed []string) {
	r = agentapi.SyncReply{
		Protocol:      agentapi.Protocol,
		ControlEpoch:  l.epoch.Load(),
		NextSyncMS:    idleSyncMS,
		TelemetryLost: l.limits.refused(h, "telemetry"),
	}
	if len(s.Leases) > 0 {
		r.NextSyncMS = leasedSyncMS
	}
	part := func(name string, err error) bool {
		if err != nil {
			failed = append(failed, name)
			l.log.Error("part of a sync failed", "host", h, "part", name, "err", err)
		}
		return err == nil
	}
	var err error
	r.Anchor, err = l.metering.IssueAnchor(ctx, h, s.BootID, s.BootMS) // first: what comes before it makes it late
	part("time anchor", err)
	ingested := true
	if len(s.Segments) > 0 { // before the statuses: a cluster of which nothing is left is settled
		r.UsageAcks, err = l.metering.Ingest(ctx, h, s.Segments, s.SegmentsSignature)
		ingested = part("usage", err)
	}
	// A status attests that its host heard all other ranks, except for what its segments say. It must not be stored
	// before those.
	if ingested || !anyDeaf(s.Segments) {
		if part("status", l.applyStatus(ctx, h, s)) {
			r.StatusAck = s.Seq
		}
	}
	if len(s.Leases) == 0 { // after the status, which says how much the host has pulled
		r.Popular, r.PopularBytes, err = l.market.PopularFor(ctx, h, s.Capabilities)
		part("popular images", err)
	}
	if len(s.Health) > 0 {
		r.HealthAck, err = l.agents.RecordHealth(ctx, h, s)
		part("health", err)
	}
	state, err := l.clusters.HostState(ctx, h, s)
	if part("desired state", err) {
		l.epoch.Store(state.ControlEpoch)
		r.Revision, r.ControlEpoch, r.Desired = state.Revision, state.ControlEpoch, state.Desired
		r.Extensions, r.LogsStored = state.Extensions, state.LogsStored
	}
	r.Update, err = l.agents.UpdateOrder(ctx, h, s)
	part("agent", err)
	return r, failed
}

// anyDeaf reports whether one of the segments says that its host did not hear another rank.
func anyDeaf(segs []agentapi.Segment) bool {
	return slices.ContainsFunc(segs, func(s agentapi.Segment) bool { return s.Facts != nil && len(s.Facts.Deaf) > 0 })
}

// applyStatus stores what the host reports of itself, and then of its leases.
func (l *Link) applyStatus(ctx context.Context, h id.Host, s agentapi.Sync) error {
	if s.ControlEpoch != l.epoch.Load() {
		s.Revision = 0 // it counts revisions of another history of the database: the host knows nothing of this one's
	}
	report, err := l.agents.RecordReport(ctx, h, s)
	if err != nil {
		return err
	}
	if !s.Full && len(s.Leases) == 0 && len(report.Gone) == 0 {
		return nil
	}
	return l.clusters.ApplyReport(ctx, h, s, report.Gone)
}

// handleInventory stores what a host has.
func (l *Link) handleInventory(ctx context.Context, h id.Host, m *nats.Msg) {
	var inv agentapi.Inventory
	err := read(m, &inv)
	if err == nil {
		// A host that cannot be reached directly is reached through a relay, if its agent takes renewals: one that does
		// not would lose its relay in the middle of a lease.
		inv.MultiNode = inv.MultiNode || (len(l.cfg.Relays) > 0 && inv.Relayed &&
			slices.Contains(inv.Capabilities, agentapi.CapRelayRenewal))
		err = l.market.UpdateInventory(ctx, h, inv)
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
