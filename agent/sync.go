package agent

import (
	"context"
	"errors"
	"fmt"
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
			next = retryDelay(failures, a.leased())
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
		a.cfg.Awake(a.leased())
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
	case reply.Desired == nil && reply.Revision > a.revision(), len(a.journal.Pending(1)) > 0 &&
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
	a.mu.Lock()
	defer a.mu.Unlock()
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
		Health:       a.cfg.GPUs.Pending(),
		Capabilities: agentapi.Capabilities(),
	}
	if a.cfg.Scratch != nil && a.cfg.Scratch.HoldsVolumes() {
		s.Capabilities = append(s.Capabilities, agentapi.CapVolumes)
	}
	if a.offersBuckets() {
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
	s.Pulled = a.countPulls()
	_, why, away := a.cfg.Engine.Away()
	if away {
		s.EngineAway = &agentapi.EngineAway{Detail: clipped(why)}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.older {
		s.Protocol = agentapi.Protocol - 1
	}
	s.Requalified, s.Shared = a.requalified(), a.sharedUses()
	a.seq++
	s.Seq, s.BootMS, s.ControlEpoch, s.Full = a.seq, a.cfg.BootMS(), a.seen.ControlEpoch, a.scanned && !away
	if a.known {
		s.Revision = a.seen.Revision // otherwise 0: the desired state with its secrets must be sent again
	}
	for _, l := range a.leases {
		for _, r := range l.runs {
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

// leased reports whether anything of a lease is on the host.
func (a *Agent) leased() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, l := range a.leases {
		if slices.ContainsFunc(l.runs, func(r *run) bool { return !r.rec.Gone }) {
			return true
		}
	}
	return false
}

// busyGPUs returns the GPUs that the agent's own containers may use: those of leases, and those that are being checked.
func (a *Agent) busyGPUs() map[string]bool {
	out := a.leasedGPUs()
	a.checking.mu.Lock()
	defer a.checking.mu.Unlock()
	for _, uuid := range a.checking.gpus {
		out[uuid] = true
	}
	return out
}

// leasedGPUs returns the GPUs that leases on the host may use, by UUID.
func (a *Agent) leasedGPUs() map[string]bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	out := map[string]bool{}
	for _, l := range a.leases {
		for _, r := range l.runs {
			if r.rec.Gone || r.rec.GPUsFree {
				continue
			}
			for _, uuid := range r.rec.Spec.GPUs {
				out[uuid] = true
			}
		}
	}
	return out
}

// takeUp is how long a process that was just started may take to observe its runs.
const takeUp = 30 * time.Second

// hides reports whether a run must not be reported yet: it has started, and this process has not observed it. A report
// would contain that the run is not well, and the server would take it for lost. This includes a run that has ended
// meanwhile, until its end is in its status. Callers hold a.mu.
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
		failed = append(failed, a.cfg.GPUs.Ack(reply.HealthAck))
	}
	failed = append(failed, a.followEpoch(reply.ControlEpoch))
	if reply.Desired != nil {
		failed = append(failed, a.follow(*reply.Desired))
	}
	a.mu.Lock()
	for _, x := range reply.Extensions {
		if r := a.find(x.LeaseRef); r != nil {
			a.extend(r, x.RunUntilMS)
			a.renewRelays(r, x.RelayToken)
		}
	}
	a.mu.Unlock()
	a.acknowledge(s, gone, reply)
	a.takePopular(s, reply)
	return errors.Join(failed...)
}

// followEpoch accepts a newer epoch of the control plane: its database was restored, and an admin has confirmed that
// its desired state now counts. Revisions start again, and usage of the last days is sent again.
func (a *Agent) followEpoch(epoch int64) error {
	a.following.Lock()
	defer a.following.Unlock()
	a.mu.Lock()
	old := a.seen
	a.mu.Unlock()
	if epoch <= old.ControlEpoch {
		return nil
	}
	if old.ControlEpoch > 0 { // not the first contact
		a.log.Warn("the control plane begins a new epoch", "from", old.ControlEpoch, "to", epoch)
		// Done before the epoch is noted: an agent that dies in between repeats it, and a repetition does no harm.
		if err := a.journal.Replay(); err != nil {
			return err
		}
	}
	if err := a.disk.saveSeen(seen{ControlEpoch: epoch}); err != nil {
		return err
	}
	a.mu.Lock()
	a.seen, a.known = seen{ControlEpoch: epoch}, false
	a.mu.Unlock()
	return nil
}

// follow applies a desired state, unless it is older than one applied before: the reply to a report may come after a
// wake with a newer state.
func (a *Agent) follow(d agentapi.Desired) error {
	a.following.Lock()
	defer a.following.Unlock()
	a.mu.Lock()
	now, known := a.seen, a.known
	a.mu.Unlock()
	if d.ControlEpoch != now.ControlEpoch || d.Revision < now.Revision || (known && d.Revision == now.Revision) {
		if d.ControlEpoch < now.ControlEpoch || d.Revision < now.Revision {
			a.log.Info("desired state is older than what was seen: nothing is changed", "revision", d.Revision, "seen",
				now.Revision,
				"control_epoch", d.ControlEpoch, "seen_epoch", now.ControlEpoch)
		}
		return nil
	}
	if err := a.disk.saveSeen(seen{d.ControlEpoch, d.Revision}); err != nil {
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.seen, a.known = seen{d.ControlEpoch, d.Revision}, true
	a.takeRequests(d.Requalify)
	a.shares.orders = d.SharedErase
	for _, o := range d.SharedErase {
		poke(a.shareNow[o.Name]) // nil, which nothing waits on, if this host does not have it
	}
	wanted := map[string]agentapi.LeaseSpec{}
	news := !known
	var failed []error
	for _, spec := range d.Leases {
		wanted[spec.Lease] = spec
		news = news || a.find(spec.LeaseRef) == nil
		if err := a.want(spec); err != nil { // only this lease waits
			a.known = false // the next report asks for the state again
			failed = append(failed, fmt.Errorf("lease %s: %w", spec.LeaseRef, err))
		}
	}
	a.keepKeys(d.Ending)
	if a.dismissRest(wanted) || news {
		poke(a.syncNow) // the server learns at once of new runs, and that this host knows what has ended
	}
	return errors.Join(failed...)
}

// want marks a run as wanted. A run that has ended here is only reported. Callers hold a.mu.
func (a *Agent) want(spec agentapi.LeaseSpec) error {
	t, ended, err := a.disk.tombstone(spec.Lease)
	if err != nil {
		return err
	}
	if l := a.leases[spec.Lease]; ended && spec.Epoch <= t.Epoch &&
		(l == nil || !slices.ContainsFunc(l.runs, func(r *run) bool { return r.ref == spec.LeaseRef })) {
		rec := record{
			Spec:    withoutSecrets(spec),
			Gone:    true,
			Down:    true,
			Outcome: &outcome{State: agentapi.NodeStopped, Reason: agentapi.ReasonSuperseded},
		}
		if st := t.Status; st.Epoch == spec.Epoch {
			rec.Started = st.Started
			rec.Outcome = &outcome{State: st.State, Reason: st.Reason, Detail: st.Detail, ExitCode: st.ExitCode}
		}
		a.addRun(spec.LeaseRef, rec)
		return nil
	}
	r := a.find(spec.LeaseRef)
	if r == nil { // its first step writes the record
		r = a.addRun(spec.LeaseRef, record{Spec: withoutSecrets(spec), RunUntilMS: spec.RunUntilMS})
	} else if spec.RunUntilMS > 0 {
		a.extend(r, spec.RunUntilMS)
	}
	r.want, r.dismissed, r.superseded = &spec, false, false
	poke(a.leases[spec.Lease].kick)
	return nil
}

// dismissRest ends every run that is not wanted, and reports whether there was one that had been wanted. Callers hold
// a.mu.
func (a *Agent) dismissRest(wanted map[string]agentapi.LeaseSpec) (some bool) {
	for _, l := range a.leases {
		spec, other := wanted[l.id]
		for _, r := range l.runs {
			if other && r.ref == spec.LeaseRef {
				continue
			}
			some = some || !r.dismissed
			r.want, r.dismissed, r.superseded = nil, true, other && spec.Epoch > r.ref.Epoch
			if r.cancel != nil && r.rec.Outcome == nil {
				r.cancel() // of a present pull or preflight; ending steps go on
			}
		}
		poke(l.kick)
	}
	return some
}

// keepKeys keeps the keys with which runs that have ended store what their volumes have. Callers hold a.mu.
func (a *Agent) keepKeys(ending []agentapi.EndingLease) {
	for _, l := range ending {
		r := a.find(l.LeaseRef)
		if r == nil {
			continue
		}
		r.keys = make(map[string][]byte, len(l.Keys))
		for _, k := range l.Keys {
			r.keys[k.Volume] = k.Key
		}
	}
}

// extend moves a run's authorised end. The new end is on the disk before it counts, so that an agent without a server
// stops the run in time, and not before. Callers hold a.mu.
func (a *Agent) extend(r *run, untilMS int64) {
	if r.rec.Gone || r.rec.RunUntilMS == untilMS {
		return
	}
	r.rec.RunUntilMS = untilMS
	if err := a.disk.save(r.ref, r.rec); err != nil {
		a.log.Error("cannot write a lease's record", "lease", r.ref, "err", err)
	}
}

// renewRelays stores the token that opens the relays from now on. Callers hold a.mu.
func (a *Agent) renewRelays(r *run, token string) {
	if token == "" || r.want == nil || r.want.Network.RelayToken == token {
		return
	}
	spec := *r.want // a copy, as views have the old one
	spec.Network.RelayToken = token
	r.want = &spec
	a.kick(r.ref)
}

// acknowledge records what the server has committed.
func (a *Agent) acknowledge(s agentapi.Sync, gone []*run, reply agentapi.SyncReply) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.ackRequalified(s, reply.RequalifyAck)
	a.ackShared(s, reply.SharedAck)
	if reply.StatusAck == s.Seq {
		if s.Pulled != nil {
			a.pulls.reported = *s.Pulled
		}
		for _, r := range gone {
			r.reported = true
			a.kick(r.ref)
		}
		for _, st := range s.Leases {
			if r := a.find(st.LeaseRef); r != nil && st.Traffic != nil {
				r.reportedTraffic = *st.Traffic
			}
		}
	}
	for _, ref := range reply.LogsStored {
		r := a.find(ref)
		if r == nil || !r.rec.LogKept {
			continue
		}
		r.rec.LogKept = false
		r.status.LogKept = false
		if err := a.disk.dropLog(r.ref, r.rec); err != nil {
			a.log.Error("cannot remove a stored log", "lease", r.ref, "err", err)
		}
		a.kick(r.ref)
	}
}

// kick makes a lease's worker look at it again. The lease may have been forgotten while its report was being sent.
// Callers hold a.mu.
func (a *Agent) kick(ref agentapi.LeaseRef) {
	if l := a.leases[ref.Lease]; l != nil {
		poke(l.kick)
	}
}

// find returns a run, or nil. Callers hold a.mu.
func (a *Agent) find(ref agentapi.LeaseRef) *run {
	if l := a.leases[ref.Lease]; l != nil {
		for _, r := range l.runs {
			if r.ref == ref {
				return r
			}
		}
	}
	return nil
}

func (a *Agent) revision() int64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.known {
		return 0
	}
	return a.seen.Revision
}
