package agent

import (
	"cmp"
	"context"
	"fmt"
	"reflect"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/musterhq/muster/agent/workload/container"
	"github.com/musterhq/muster/agent/workload/guest"
	"github.com/musterhq/muster/internal/agentapi"
)

// observe looks at a run. An error means that nothing can be concluded.
func (a *Agent) observe(ctx context.Context, r *run) (view, error) {
	a.runs.mu.Lock()
	v := view{
		want:       r.want,
		keys:       r.keys,
		dismissed:  r.dismissed,
		superseded: r.superseded,
		rec:        r.rec,
		boot:       a.cfg.BootID,
		reported:   r.reported,
	}
	a.runs.mu.Unlock()
	v.withdrawn = r.withdrawn
	v.drained = a.journal.Drained(r.ref)
	v.left, v.limited = a.authorised(v.rec)
	v.expired, v.ending = v.limited && v.left <= 0, v.limited && v.left <= v.grace()
	v.leaving = a.leaving(v)
	if v.rec.Gone {
		return v, nil
	}
	parent := ctx
	ctx, cancel := context.WithTimeout(parent, 10*time.Second)
	defer cancel()
	var look errgroup.Group
	v.seenBoot = a.cfg.BootMS()
	look.Go(func() (err error) {
		v.guest, err = a.cfg.Engine.Inspect(ctx, r.ref, container.Guest)
		return err
	})
	look.Go(func() (err error) {
		v.work, err = a.cfg.Engine.Inspect(ctx, r.ref, container.Work)
		return err
	})
	err := look.Wait()
	if err != nil {
		return v, err
	}
	a.runs.mu.Lock()
	r.workPID = v.work.PID
	a.runs.mu.Unlock()
	if v.rec.Outcome == nil {
		if v.interrupted, err = a.interrupted(ctx, v); err != nil {
			return v, err
		}
	}
	if v.scratch, err = scratched(v); err != nil {
		return v, err
	}
	v.scratchLost, v.partitionLost = lostScratch(v), a.rdma.lost(v)
	if v.volumes, err = a.storage.look(v, r); err != nil {
		return v, err
	}
	v.buckets = a.storage.mounts.bucketsOf(v, r, v.volumes.made)
	v.lazies = a.storage.mounts.laziesOf(v, r, v.volumes.made)
	// read from its folder: it counts after the guest's death too
	v.report = guest.KeptWorkload(r.files.Guest, r.ref)
	if v.guest.State == container.Running && v.rec.Outcome == nil { // the end of a run does not wait for it
		a.readOverlay(parent, r, &v)
	}
	return v, parent.Err() // an overlay that had no time to answer is not silent
}

// interrupted reports whether the node ended together with the container engine.
func (a *Agent) interrupted(ctx context.Context, v view) (bool, error) {
	work, err := a.cfg.Engine.Interrupted(ctx, v.work)
	if work || err != nil {
		return work, err
	}
	return a.cfg.Engine.Interrupted(ctx, v.guest)
}

// answerIn is how long a running overlay process may take to report its state. The absence of a process is noticed at
// once.
const answerIn = 5 * time.Second

// readOverlay gets the state of a run's overlay process. A process that does not answer is not up; that alone ends
// nothing. The time that the engine took to answer does not shorten the process's time.
func (a *Agent) readOverlay(ctx context.Context, r *run, v *view) {
	ctx, cancel := context.WithTimeout(ctx, answerIn)
	defer cancel()
	a.runs.mu.Lock()
	handle, given, relays := r.overlay, r.peers, r.relays
	a.runs.mu.Unlock()
	if handle == nil {
		return
	}
	st, err := handle.Status(ctx)
	if err != nil || st.Ref != r.ref {
		return
	}
	v.overlay, v.peersDown, v.paths = true, st.PeersDown(), st.Paths()
	v.peerStatus, v.deaf = st.Peers, r.hearing.Take(a.cfg.BootMS(), st.Peers)
	v.downSince = r.hearing.Down()
	v.peers, v.staleRelays = reflect.DeepEqual(given, v.spec().Network.Peers), relays.stale(v.spec().Network)
}

// authorised returns how much is left of a run's authorised time, negative once it is over. known is false if the run
// has no end, or the server's clock is not known. Without a time anchor of this boot it is not known, and nothing of an
// earlier boot runs.
func (a *Agent) authorised(rec record) (left time.Duration, known bool) {
	anchor, ok := a.journal.Anchor()
	if !ok || rec.RunUntilMS <= 0 {
		return 0, false
	}
	return time.Duration(rec.RunUntilMS-anchor.At(a.cfg.BootMS())) * time.Millisecond, true
}

// statusOf returns the status to report of a run. progress is the progress shown so far.
func statusOf(ref agentapi.LeaseRef, v view, progress agentapi.Progress) agentapi.LeaseStatus {
	rec := v.rec
	st := agentapi.LeaseStatus{
		LeaseRef:    ref,
		State:       stage(v),
		WGKey:       rec.WGKey,
		Endpoints:   rec.Endpoints,
		Preflight:   rec.Preflight,
		ImageDigest: cmp.Or(rec.ImagePin, rec.ImageDigest),
		Started:     rec.Started,
		LogKept:     rec.LogKept,
		Gone:        rec.Gone,
		GPUsFree:    rec.GPUsFree,
		NotUploaded: rec.NotUploaded,
	}
	if rec.BootID == v.boot {
		st.StartBootMS = rec.StartBoot
	}
	if o := rec.Outcome; o != nil {
		st.Reason, st.Detail, st.ExitCode = o.Reason, clipped(o.Detail), o.ExitCode
		if rec.BootID == v.boot {
			st.ExitBootMS = o.ExitBoot
		}
		return st
	}
	if rec.startsAgain() {
		st.StartsAgain, st.Trouble, st.TroubleDetail = true, rec.Died.Reason, clipped(rec.Died.Detail)
	}
	switch p := rec.Preflight; {
	case p == nil:
	case !p.OK:
		st.Preflight = nil // no verdict before the run is concluded with it: a rank it blames may have died
	case v.report.NCCL != nil:
		with := *p
		with.NCCL = v.report.NCCL
		st.Preflight = &with
	case v.spec().Network.NCCL != nil && v.report.State == guest.StateNone:
		st.Preflight = nil // the server takes the first one; the fabric's figures are to be in it
	}
	st.Progress, st.PeersDown, st.PeersDownSince, st.Paths = progress, v.peersDown, v.downSince, v.paths
	st.AtBarrier = v.ready()
	return st
}

// ready reports whether the run waits at the barrier and, if it has peers, its network was measured.
func (v view) ready() bool {
	return v.report.State == guest.StateAtBarrier && (v.spec().Nodes <= 1 || v.rec.Preflight != nil && v.rec.Preflight.OK)
}

// clipped returns as much of a detail as a status may carry. Images and daemons chose some of its words.
func clipped(s string) string { return agentapi.Clip(s, 500) }

// stage returns the state in the order of a start.
func stage(v view) agentapi.NodeState {
	switch o := v.rec.Outcome; {
	case o != nil && o.State == agentapi.NodeFailed:
		return agentapi.NodeFailed
	case o != nil && (o.ExitCode != nil || (v.work.State != container.Running && v.rec.Down) || v.rec.Gone):
		return agentapi.NodeStopped
	case o != nil:
		return agentapi.NodeStopping
	case v.rec.Started, v.ready(), v.report.State == guest.StateStarted:
		return agentapi.NodeReady
	case v.overlay && !v.rec.startsAgain():
		return agentapi.NodeJoining
	case v.rec.ImageID != "":
		return agentapi.NodeStarting
	}
	return agentapi.NodePulling
}

// report puts what was observed into the run's status.
func (a *Agent) report(r *run, v view, s step) {
	if s.do == actConclude {
		// The end is reported with its cause, once that is recorded: before, it would look like a node that is not well.
		return
	}
	sick := a.use.sick(v.spec().GPUs...)
	ownersMB := a.use.ownersMB(v)
	a.runs.setStatus(r, func(old agentapi.LeaseStatus) agentapi.LeaseStatus {
		if !r.looked && s.do != actStartOverlay && s.do != actNoteStart {
			// in one update with the observation: from now on hides no longer holds the run back
			r.looked = true
			poke(a.syncNow)
		}
		st := statusOf(r.ref, v, old.Progress)
		st.OwnerMB, st.Leaving = ownersMB, v.leaving
		if p, ok := progressOf[s.do]; ok {
			st.Progress = agentapi.Progress{Step: p}
		}
		if !s.do.ending() {
			st.Progress.WaitingFor = s.waiting
		}
		switch s.do {
		case actAwaitGo:
			st.Progress = agentapi.Progress{Step: "workload", WaitingFor: "the other ranks are not all ready"}
		case actWatch:
			st.Progress = agentapi.Progress{Uploads: r.uploadsToReport(v, a.cfg.Now())}
		}
		switch s.do {
		case actWatch, actSetPeers, actSetRelays, actStartOverlay:
			st.Good = v.well(s, sick)
			switch {
			case st.Good || !v.rec.Started:
			case sick != "":
				st.Trouble, st.TroubleDetail = agentapi.ReasonGPUFailed, clipped(sick)
			case v.volumes.lost != "":
				st.Trouble, st.TroubleDetail = agentapi.ReasonScratchFailed, clipped(v.volumes.lost)
			case v.scratchLost != "":
				st.Trouble, st.TroubleDetail = agentapi.ReasonScratchFailed, clipped(v.scratchLost)
			case v.partitionLost != "":
				st.Trouble, st.TroubleDetail = agentapi.ReasonOverlayFailed, clipped(v.partitionLost)
			default:
				st.Trouble, st.TroubleDetail = agentapi.ReasonOverlayFailed,
					"the process that carries the node's network does not answer"
			}
		}
		st.GoodSinceBootMS = r.goodSinceBoot(st.Good, v.seenBoot)
		return st
	})
}

// goodSinceBoot records whether a run is good, and returns since when it has been, in CLOCK_BOOTTIME milliseconds; 0:
// it is not good. Callers hold runs.mu.
func (r *run) goodSinceBoot(good bool, now int64) int64 {
	switch {
	case !good:
		r.goodSince = 0
	case r.goodSince == 0:
		r.goodSince = now
	}
	return r.goodSince
}

// leaving returns what the machine's cloud announces about it while something of the renter's runs.
func (a *Agent) leaving(v view) string {
	if a.cfg.Leaving == nil || !v.rec.Started || v.rec.Outcome != nil {
		return ""
	}
	return agentapi.Clip(a.cfg.Leaving(), agentapi.MaxLeaving)
}

// progressOf names the step that a person sees during an action. Actions without an entry leave the shown step as it
// is.
var progressOf = map[action]string{
	actMakeScratch:  "scratch",
	actMakeVolumes:  "restore",
	actMountBuckets: "buckets",
	actMountLazies:  "volumes",
	actStartGuest:   "guest",
	actStartOverlay: "overlay",
	actAwaitPeers:   "peers",
	actSetPeers:     "peers",
	actPreflight:    "preflight",
	actStandBy:      "workload",
	actStartWork:    "workload",
	actAwaitInit:    "workload",
	actOpenBarrier:  "workload",
	actAwaitStart:   "workload",
}

// progressEvery is the shortest time between reports of mere progress within a step.
const progressEvery = time.Second

// unseen records that a run cannot be observed: then it is not known to be well, and no report is full.
func (a *Agent) unseen(r *run, err error) {
	a.runs.mu.Lock()
	a.runs.scanned = false
	a.runs.mu.Unlock()
	poke(a.rescan)
	a.runs.setStatus(r, func(st agentapi.LeaseStatus) agentapi.LeaseStatus {
		st.Good, st.GoodSinceBootMS, r.goodSince = false, 0, 0
		if st.Started && st.ExitCode == nil {
			st.Trouble, st.TroubleDetail = agentapi.ReasonRuntimeFailed, "the host's container engine does not answer"
		}
		st.Progress.WaitingFor = clipped(safe(err))
		if r.want != nil && r.rec.Outcome == nil && !(view{rec: r.rec}).begun() {
			st.Progress.WaitingFor = fmt.Sprintf("The host's container engine does not answer. It is tried again for %d "+
				"minutes; then this start ends, "+
				"and another host can be rented. Nothing is charged until then.", int(enginePatience.Minutes()))
		}
		return st
	})
}

// enginePatience is how long a start waits for the host's container engine before it has failed.
const enginePatience = 2 * time.Minute

// withoutEngine returns the outcome of a run of which nothing has started if the container engine is away for too long;
// nil means that the run keeps waiting. A run that has started is never concluded without the engine: with live restore
// it goes on.
func (a *Agent) withoutEngine(v view, now time.Time) *outcome {
	since, _, away := a.cfg.Engine.Away()
	if !away || now.Sub(since) < enginePatience || v.want == nil || v.rec.Outcome != nil || v.begun() {
		return nil
	}
	return failed(agentapi.ReasonRuntimeFailed, fmt.Sprintf("the host's container engine did not answer for %d minutes",
		int(enginePatience.Minutes())))
}

// delayed puts what a step waits for into the run's status, for people.
func (a *Agent) delayed(r *run, err error) {
	a.runs.setStatus(r, func(st agentapi.LeaseStatus) agentapi.LeaseStatus {
		st.Progress.WaitingFor = clipped(safe(err))
		return st
	})
}
