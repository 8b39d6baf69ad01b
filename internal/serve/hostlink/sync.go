package hostlink

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/bus"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/metrics"
	"github.com/musterhq/muster/internal/tracing"
)

// Longest time until an agent's next sync in milliseconds, with and without leases.
const (
	leasedSyncMS = 15_000
	idleSyncMS   = 75_000
)

// nextSync returns the time until a host's next sync in milliseconds. It varies at random, so that hosts that connected
// together do not keep reporting together: by a tenth with leases, and by two fifths without.
func nextSync(leases int) int64 {
	if leases > 0 {
		return leasedSyncMS - rand.Int64N(leasedSyncMS/10)
	}
	return idleSyncMS - rand.Int64N(idleSyncMS*2/5)
}

// handleSync handles one report of a host.
func (l *Link) handleSync(ctx context.Context, h id.Host, m *nats.Msg) {
	began := time.Now()
	s, refused, err := readSync(m)
	if err != nil {
		metrics.HostSyncRefused()
		l.log.Warn("a host's sync is refused", "host", h, "err", err)
		l.answer(h, m, agentapi.SyncReply{Protocol: agentapi.Protocol, Error: err.Error(), ControlEpoch: l.epoch.Load()})
		return
	}
	if refused != nil {
		metrics.HostSyncRefused()
		l.log.Warn("parts of a host's sync are refused", "host", h, "err", refused)
	}
	ctx, span := tracing.Request(ctx, "report of a host")
	span.Set("leases", len(s.Leases))
	span.Set("segments", len(s.Segments))
	reply, failed := l.sync(ctx, h, s)
	metrics.HostSync(began, failed)
	l.answer(h, m, reply)
	span.Set("failed_parts", len(failed))
	span.End(nil)
}

// sync stores a host's report and returns the reply. Each part of the report is committed and acknowledged separately:
// a part that fails is logged and not acknowledged, so the host sends it again. failed contains the names of those
// parts.
func (l *Link) sync(ctx context.Context, h id.Host, s agentapi.Sync) (r agentapi.SyncReply, failed []string) {
	var err error
	r = agentapi.SyncReply{
		Protocol:      agentapi.Protocol,
		ControlEpoch:  l.epoch.Load(),
		NextSyncMS:    nextSync(len(s.Leases)),
		TelemetryLost: l.limits.refused(h, "telemetry"),
	}
	if l.quiet != nil {
		a, quiet := l.quiet.Take(ctx, h, s, l.waitForOthers())
		idled(ctx, a.Waited)
		if quiet {
			r.Revision, r.ControlEpoch, r.Anchor, r.StatusAck = a.Revision, a.ControlEpoch, &a.Anchor, s.Seq
			if r.Extensions = a.Extensions; len(s.Leases) > 0 {
				return r, nil
			}
			if r.Popular, err = l.market.Popular(ctx); err != nil {
				l.log.Error("part of a sync failed", "host", h, "part", "popular images", "err", err)
			}
			return r, nil
		}
	}
	part := func(name string, err error) bool {
		if err != nil {
			failed = append(failed, name)
			l.log.Error("part of a sync failed", "host", h, "part", name, "err", err)
		}
		return err == nil
	}
	r.Anchor, err = l.metering.IssueAnchor(ctx, h, s.BootID, s.BootMS) // first: a delay before it makes it late
	part("time anchor", err)
	ingested := true
	if len(s.Segments) > 0 { // before status: it settles a cluster when nothing is left of it
		r.UsageAcks, err = l.metering.Ingest(ctx, h, s.Segments, s.SegmentsSignature)
		ingested = part("usage", err)
	}
	// A status attests that the host received packets from all other ranks, except as its segments state. So it must not
	// be stored before those segments.
	if ingested || !anyDeaf(s.Segments) {
		if part("status", l.applyStatus(ctx, h, s)) {
			r.StatusAck = s.Seq
		}
	}
	if len(s.Leases) == 0 { // after status, which includes how much the host has pulled
		r.Popular, r.PopularBytes, err = l.market.PopularFor(ctx, h, s.Capabilities)
		part("popular images", err)
	}
	if len(s.Health) > 0 {
		r.HealthAck, err = l.agents.RecordHealth(ctx, h, s)
		part("health", err)
	}
	if len(s.Requalified) > 0 && part("requalified GPUs", l.agents.RecordRequalified(ctx, h, s.Requalified)) {
		r.RequalifyAck = s.Seq
	}
	if len(s.Shared) > 0 && l.shared != nil && part("shared folders", l.shared.RecordUse(ctx, h, s.Shared)) {
		r.SharedAck = s.Seq
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

// quietWait is how long a report in which nothing is new may wait for others, with which it is read.
const quietWait = 100 * time.Millisecond

// waitForOthers returns how long a quiet report may wait for others: not at all while all workers are busy, because
// reports are read together then anyway, and a report that waits occupies a worker.
func (l *Link) waitForOthers() time.Duration {
	if l.reports.behind(0) {
		return 0
	}
	return quietWait
}

// quietFlush is how often the times of quiet reports are written. Hosts count as reachable for much longer.
const quietFlush = 10 * time.Second

// flushQuiet writes when the hosts of quiet reports last reported.
func (l *Link) flushQuiet(ctx context.Context) {
	if err := l.quiet.Flush(ctx); err != nil && l.ctx.Err() == nil {
		l.log.Error("contact of hosts was not recorded", "err", err)
	}
}

// anyDeaf reports whether a segment states that its host did not receive packets from another rank.
func anyDeaf(segs []agentapi.Segment) bool {
	return slices.ContainsFunc(segs, func(s agentapi.Segment) bool { return s.Facts != nil && len(s.Facts.Deaf) > 0 })
}

// applyStatus stores the report about the host itself, and then about its leases.
func (l *Link) applyStatus(ctx context.Context, h id.Host, s agentapi.Sync) error {
	if s.ControlEpoch != l.epoch.Load() {
		s.Revision = 0 // the revision is from before a restore and means nothing now
	}
	report, err := l.agents.RecordReport(ctx, h, s)
	if err != nil {
		return err
	}
	if report.Done || !s.Full && len(s.Leases) == 0 && len(report.Gone) == 0 {
		return nil
	}
	return l.clusters.ApplyReport(ctx, h, s, report.Gone)
}

// handleInventory stores a host's inventory.
func (l *Link) handleInventory(ctx context.Context, h id.Host, m *nats.Msg) {
	var inv agentapi.Inventory
	changed := false
	err := read(m, &inv)
	if err == nil {
		// A host that other hosts cannot reach directly can be reached through a relay, if its agent supports renewal.
		// Without renewal it would lose its relay in the middle of a lease.
		inv.MultiNode = inv.MultiNode || (len(l.cfg.Relays) > 0 && inv.Relayed &&
			slices.Contains(inv.Capabilities, agentapi.CapRelayRenewal))
		if l.shared != nil { // first: the market reads it when the inventory has changed
			err = l.shared.RecordHost(ctx, h, inv.Shared)
		}
	}
	if err == nil {
		changed, err = l.market.UpdateInventory(ctx, h, inv)
	}
	var ack agentapi.Ack
	switch f := fault.From(err); {
	case err == nil && changed:
		l.recorder.forget(h)
		l.bus.Changed(bus.TopicHost(h))
	case err == nil:
	case f != nil:
		ack.Error = f.Message
	case errors.Is(err, errMalformed):
		ack.Error = errMalformed.Error()
	default:
		ack.Error = "the inventory could not be stored: try again"
	}
	if err != nil {
		l.log.Warn("inventory not taken", "host", h, "err", err)
	}
	l.answer(h, m, ack)
}
