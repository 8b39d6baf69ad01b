package agent

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"time"

	"golang.org/x/time/rate"

	"github.com/musterhq/muster/agent/self/update"
	"github.com/musterhq/muster/internal/agentapi"
)

const (
	syncLeased = 15 * time.Second
	syncIdle   = 60 * time.Second

	// A report that was not answered is sent again after syncRetry, then after twice as long each time up to maxSyncRetry,
	// and with leases up to leasedRetry.
	syncRetry    = 2 * time.Second
	maxSyncRetry = time.Minute
	leasedRetry  = 5 * time.Second

	// Rate limit of reports: a burst, then a number per second. The start of a node sends several reports within a second.
	syncBurst = 20
	syncRate  = 4
)

// syncLoop sends reports and receives the desired state: at once if something changed, otherwise at intervals.
func (a *Agent) syncLoop(ctx context.Context) {
	down, failures, held := false, 0, backoff{log: a.log, what: "reports"}
	pace := rate.NewLimiter(syncRate, syncBurst)
	for pace.Wait(ctx) == nil {
		next, err := a.syncOnce(ctx)
		if held.wait(ctx, err) {
			continue // with a fresh report: an older one would bring its time anchor too late
		}
		switch {
		case err != nil && !down && ctx.Err() == nil:
			a.log.Warn("the control plane cannot be reached: what runs goes on", "err", err)
		case err == nil && down:
			a.log.Info("the control plane answers again")
		}
		if down = err != nil; down {
			next = retryDelay(failures, a.runs.leased())
			failures++
		} else {
			failures = 0
		}
		pause(ctx, next, a.syncNow)
	}
}

// retryDelay returns the wait before a report is sent again of which the last ones failed, the given number before the
// last. It is randomised by half in both directions, so that hosts that failed together do not come back together.
func retryDelay(failures int, leased bool) time.Duration {
	longest := maxSyncRetry
	if leased {
		longest = leasedRetry
	}
	d := min(syncRetry<<min(failures, 10), longest)
	return d/2 + rand.N(d)
}

// syncOnce sends one report and applies the answer. It returns when the next report is due.
func (a *Agent) syncOnce(ctx context.Context) (next time.Duration, err error) {
	s, gone := a.bounded(a.sync())
	if a.cfg.Awake != nil {
		a.cfg.Awake(a.runs.leased())
	}
	reply, err := a.cfg.Link.Sync(ctx, s)
	if err != nil {
		return 0, err
	}
	if reply.TelemetryLost > 0 {
		a.log.Warn("the control plane had too much telemetry of this host: samples are lost", "messages", reply.TelemetryLost)
	}
	if a.noteProtocol(s, reply) {
		return 0, nil
	}
	if reply.Error != "" {
		a.log.Error("the control plane refuses our reports", "reason", reply.Error)
		a.applyUpdateReply(s, reply)
		return syncLeased, nil
	}
	if err := a.take(s, gone, reply); err != nil {
		return 0, err
	}
	a.applyUpdateReply(s, reply)
	switch {
	case reply.Desired == nil && reply.Revision > a.desired.revision(), len(a.journal.Pending(1)) > 0 &&
		len(s.Segments) == agentapi.MaxSegments:
		return 0, nil
	case reply.NextSyncMS > 0:
		return time.Duration(reply.NextSyncMS) * time.Millisecond, nil
	case len(s.Leases) > 0:
		return syncLeased, nil
	}
	return syncIdle*3/4 + rand.N(syncIdle/2), nil
}

// noteProtocol records which protocol the server understands. It reports whether the server refused the report because
// of its protocol, so that it must be sent again in the previous protocol. A newer protocol only adds to the previous
// one.
func (a *Agent) noteProtocol(s agentapi.Sync, reply agentapi.SyncReply) (again bool) {
	a.runs.mu.Lock()
	defer a.runs.mu.Unlock()
	switch {
	case reply.Protocol > 0:
		a.older = reply.Protocol < agentapi.Protocol
	case reply.Error != "" && reply.RetryMS == 0 && s.Protocol == agentapi.Protocol:
		a.older = true
		return true
	}
	return false
}

// sync returns a report of the present state, and the runs that are gone in it.
func (a *Agent) sync() (s agentapi.Sync, gone []*run) {
	s = agentapi.Sync{
		Protocol:     agentapi.Protocol,
		AgentVersion: a.cfg.Version,
		BootID:       a.cfg.BootID,
		Leases:       []agentapi.LeaseStatus{},
		Health:       a.cfg.GPUs.Diagnosis.Pending(),
		Capabilities: agentapi.Capabilities(),
	}
	if a.cfg.Scratch != nil && a.cfg.Scratch.HoldsVolumes() {
		s.Capabilities = append(s.Capabilities, agentapi.CapVolumes)
	}
	if a.storage.mounts.offered() {
		s.Capabilities = append(s.Capabilities, agentapi.CapBuckets, agentapi.CapLazy)
	}
	s.Health = slices.Clone(s.Health)
	for i := range s.Health { // text from the kernel and the driver
		s.Health[i].Detail = agentapi.CleanText(s.Health[i].Detail)
	}
	if a.cfg.Updates != nil {
		st := a.cfg.Updates.Status()
		s.Update = &st
	}
	s.Segments, s.SegmentsSignature = a.journal.Report(agentapi.MaxSegments)
	s.Pulled = a.images.countPulls()
	s.Requalified, s.Shared = a.resets.toReport(), a.shared.toReport()
	_, why, away := a.cfg.Engine.Away()
	if away {
		s.EngineAway = &agentapi.EngineAway{Detail: clipped(why)}
	}
	a.runs.mu.Lock()
	defer a.runs.mu.Unlock()
	if a.older {
		s.Protocol = agentapi.Protocol - 1
	}
	a.seq++
	s.Seq, s.BootMS, s.ControlEpoch, s.Full = a.seq, a.cfg.BootMS(), a.desired.seen.ControlEpoch, a.runs.scanned && !away
	if a.runs.known {
		s.Revision = a.desired.seen.Revision // otherwise 0: the desired state with its secrets must be sent again
	}
	for r := range a.runs.all() {
		if a.hides(r) {
			s.Full = false
			continue
		}
		st := r.status
		st.Traffic = r.trafficOf()
		s.Leases = append(s.Leases, st)
		if r.status.Gone {
			gone = append(gone, r)
		}
	}
	slices.SortFunc(s.Leases, func(x, y agentapi.LeaseStatus) int {
		if x.Lease != y.Lease {
			if x.Lease < y.Lease {
				return -1
			}
			return 1
		}
		return x.Epoch - y.Epoch
	})
	return s, gone
}

// bounded makes a report small enough for the link. What is left out of it is not gone in it.
func (a *Agent) bounded(s agentapi.Sync, gone []*run) (agentapi.Sync, []*run) {
	leases, segments := len(s.Leases), len(s.Segments)
	s.Bound()
	if len(s.Segments) < segments { // the signature is of the list
		s.Segments, s.SegmentsSignature = a.journal.Report(len(s.Segments))
	}
	if len(s.Leases) == leases {
		return s, gone
	}
	a.log.Warn("the report of all leases is too large: the largest are left out", "leases", leases, "reported",
		len(s.Leases))
	return s, slices.DeleteFunc(gone, func(r *run) bool {
		return !slices.ContainsFunc(s.Leases, func(l agentapi.LeaseStatus) bool { return l.LeaseRef == r.ref })
	})
}

// applyUpdateReply passes the server's answer to the updater of the agent, with the result of the exchange.
func (a *Agent) applyUpdateReply(s agentapi.Sync, reply agentapi.SyncReply) {
	if a.cfg.Updates != nil {
		a.cfg.Updates.Reported(update.Report{
			Committed: reply.Error == "" && reply.StatusAck == s.Seq,
			Full:      s.Full,
			Leases:    s.Leases,
			Order:     reply.Update,
		})
	}
}

// takeUp is how long a process that was just started may take to observe its runs.
const takeUp = 30 * time.Second

// hides reports whether a run must not be reported yet: it has started, and this process has not observed it. A report
// would contain that the run is not well, and the server would take it for lost. This includes a run that has ended
// meanwhile, until its end is in its status. Callers hold runs.mu.
func (a *Agent) hides(r *run) bool {
	return r.rec.Started && !r.looked && a.cfg.Now().Sub(a.born) < takeUp
}

// take applies the server's answer. Its parts are independent of each other: each is applied even if
// others fail.
func (a *Agent) take(s agentapi.Sync, gone []*run, reply agentapi.SyncReply) error {
	var failed []error
	if reply.Anchor != nil {
		failed = append(failed, a.journal.SetAnchor(*reply.Anchor))
	}
	failed = append(failed, a.journal.Ack(reply.UsageAcks))
	if reply.HealthAck > 0 {
		failed = append(failed, a.cfg.GPUs.Diagnosis.Ack(reply.HealthAck))
	}
	failed = append(failed, a.desired.followEpoch(reply.ControlEpoch))
	if reply.Desired != nil {
		failed = append(failed, a.desired.follow(*reply.Desired))
	}
	a.runs.mu.Lock()
	for _, x := range reply.Extensions {
		if r := a.runs.find(x.LeaseRef); r != nil {
			a.runs.extend(r, x.RunUntilMS)
			a.desired.renewRelays(r, x.RelayToken)
		}
	}
	a.runs.mu.Unlock()
	a.acknowledge(s, gone, reply)
	if len(s.Leases) == 0 {
		a.images.takePopular(reply)
	}
	return errors.Join(failed...)
}

// acknowledge records what the server has committed.
func (a *Agent) acknowledge(s agentapi.Sync, gone []*run, reply agentapi.SyncReply) {
	if reply.RequalifyAck != 0 && reply.RequalifyAck == s.Seq {
		a.resets.acknowledge(s.Requalified)
	}
	if reply.SharedAck != 0 && reply.SharedAck == s.Seq {
		a.shared.acknowledge(s.Shared)
	}
	if reply.StatusAck == s.Seq && s.Pulled != nil {
		a.images.pullsReported(*s.Pulled)
	}
	a.runs.mu.Lock()
	defer a.runs.mu.Unlock()
	if reply.StatusAck == s.Seq {
		for _, r := range gone {
			r.reported = true
			a.runs.kick(r.ref)
		}
		for _, st := range s.Leases {
			if r := a.runs.find(st.LeaseRef); r != nil && st.Traffic != nil {
				r.reportedTraffic = *st.Traffic
			}
		}
	}
	for _, ref := range reply.LogsStored {
		r := a.runs.find(ref)
		if r == nil || !r.rec.LogKept {
			continue
		}
		r.rec.LogKept = false
		r.status.LogKept = false
		if err := a.disk.dropLog(r.ref, r.rec); err != nil {
			a.log.Error("cannot remove a stored log", "lease", r.ref, "err", err)
		}
		a.runs.kick(r.ref)
	}
}
