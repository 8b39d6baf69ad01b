package agent

import (
	"fmt"
	"time"

	"github.com/musterhq/muster/agent/net/overlay"
	"github.com/musterhq/muster/agent/workload/container"
	"github.com/musterhq/muster/agent/workload/guest"
	"github.com/musterhq/muster/internal/agentapi"
)

// action is the next thing to do for a run.
type action string

const (
	actRest         action = "rest"          // nothing, until something changes
	actAwaitServer  action = "await_server"  // the agent was restarted and needs data that only the server has
	actPull         action = "pull"          //
	actMakeScratch  action = "make_scratch"  // before any container that could use it
	actMakeVolumes  action = "make_volumes"  //
	actStartGuest   action = "start_guest"   // or adopt a running one
	actStartAgain   action = "start_again"   // the node died before anything of the renter's ran: repeat from the guest on
	actStartOverlay action = "start_overlay" //
	actAwaitPeers   action = "await_peers"   // other ranks have not reported their keys
	actSetPeers     action = "set_peers"     //
	actSetRelays    action = "set_relays"    // changed relays, or a renewed token
	actPreflight    action = "preflight"     // and, at the same time, what start_work does, if nothing is to be restored
	actStandBy      action = "stand_by"      // a rank came back, with which this one may have to measure again
	actRestore      action = "restore"       // the volumes' last commits; nothing of the renter's runs before
	actMountLazies  action = "mount_lazies"  // the volumes that are read on demand
	actMountBuckets action = "mount_buckets" // the renter's own buckets
	actStartWork    action = "start_work"    //
	actAwaitInit    action = "await_init"    // the workload's init has not reported
	actAwaitGo      action = "await_go"      // at the barrier
	actOpenBarrier  action = "release"       //
	actAwaitStart   action = "await_start"   // released
	actNoteStart    action = "note_start"    // the command runs: time counts
	actWatch        action = "watch"         // running
	actKill         action = "kill"          // it takes the host's memory outside its limit
	actConclude     action = "conclude"      // it has ended or must end: see step.outcome
	actStopWork     action = "stop_work"     //
	actKeepLog      action = "keep_log"      //
	actTearDown     action = "tear_down"     //
	actFreeGPUs     action = "free_gpus"     // nothing runs any more; from then on another lease may have the GPUs
	actFlush        action = "flush"         // the volumes' last snapshots are committed, and the buckets uploaded
	actWipe         action = "wipe"          // once nothing runs any more
	actForget       action = "forget"        // once the server has all of it
)

// ending reports whether the action ends a run: such actions are never cancelled halfway.
func (a action) ending() bool {
	switch a {
	case actConclude, actStopWork, actKeepLog, actTearDown, actFreeGPUs, actFlush, actWipe, actForget:
		return true
	}
	return false
}

// outcome is how a run ended, or why it must end.
type outcome struct {
	State    agentapi.NodeState `json:"state"` // stopped or failed
	Reason   string             `json:"reason,omitempty"`
	Detail   string             `json:"detail,omitempty"`
	ExitCode *int               `json:"exit_code,omitempty"`
	ExitBoot int64              `json:"exit_boot_ms,omitempty"` // time of the end, on the clock of the run's boot
}

// maxDeaths is how often a node that dies while it starts is started again.
const maxDeaths = 3

// keepsPlace reports whether a run that ended with this outcome keeps its GPUs: a rank that is done remains a part of
// its cluster while others go on, and its time counts, until the server ends it or the paid time is over.
func (o *outcome) keepsPlace() bool { return o != nil && o.ExitCode != nil && *o.ExitCode == 0 }

func failed(reason, detail string) *outcome {
	return &outcome{State: agentapi.NodeFailed, Reason: reason, Detail: detail}
}

// passes reports whether a failure may be temporary: the node died before anything of the renter's ran, and can be
// started again without consequences.
func passes(v view, o *outcome) bool {
	switch o.Reason {
	case agentapi.ReasonGuestDied, agentapi.ReasonHostInterrupted, agentapi.ReasonRuntimeFailed:
	default:
		return false
	}
	return !v.begun() && v.rec.Deaths < maxDeaths
}

// step is a decision of plan.
type step struct {
	do      action
	outcome *outcome // of actConclude; for actStartAgain, the cause of the node's death
	waiting string   // the cause of a delay, for people
}

// view is everything that the next step depends on: what the server wants, what this host has recorded, and what is
// there now.
type view struct {
	want       *agentapi.LeaseSpec // complete, from the server; nil if it has not answered or does not want the run
	keys       map[string][]byte   // of the run's volumes, from the server, once the run has ended
	dismissed  bool                // the server does not want the run: only the server's answer sets this
	superseded bool                // a later epoch of the lease is wanted
	expired    bool                // run_until has passed
	ending     bool                // it passes within the grace period: a running command must be asked to end
	left       time.Duration       // of the authorised time, if limited; negative once it is over
	limited    bool                // the run has an end, and the server's clock is known
	leaving    string              // what the machine's cloud announces about it, once the command has started
	rec        record
	boot       string // id of the present boot

	guest, work container.Container
	report      guest.Workload // last report of the workload's init
	scratch     bool           // it is mounted, or it is too late to check
	volumes     volumeView
	buckets     bucketView
	lazies      mountView
	// partitionLost is why the RDMA ports of a running workload are not in its cluster's partition alone; "" while they
	// are
	partitionLost string
	scratchLost   string // why a running workload can no longer write to it; "" while it can
	overlay       bool   // its process answers
	peers         bool   // it has the peers of spec
	staleRelays   bool   // its relays differ from those of spec, or its token was renewed
	withdrawn     bool   // the guest measures with no peer, as a rank was absent
	peersDown     []int  // silent ranks, by the overlay's report
	peerStatus    []overlay.PeerStatus
	downSince     []agentapi.PeerDown // the same, with the time of each one's last message
	deaf          []agentapi.DeafSpan // silences that go on or have ended since the last look
	seenBoot      int64               // start of this look, CLOCK_BOOTTIME
	paths         []agentapi.PeerPath
	interrupted   bool // the end of work or guest coincides with the daemon's own
	drained       bool // no usage is left to send
	reported      bool // the server has committed that all is gone
}

// waits reports whether a run that is done only waits for the rest of its cluster.
func (v view) waits(o *outcome) bool {
	return o.keepsPlace() && !v.dismissed && !v.superseded && !v.expired && v.rec.BootID == v.boot
}

// begun reports whether something of the renter's may have run.
func (v view) begun() bool {
	return v.rec.BarrierOpened || v.rec.Started || v.report.State == guest.StateStarted ||
		v.report.State == guest.StateRefused
}

// spec returns what to run: complete from the server, or without secrets from this host's record.
func (v view) spec() agentapi.LeaseSpec {
	if v.want != nil {
		return *v.want
	}
	return v.rec.Spec
}

// plan decides the next step of a run. It is pure: the same view always gives the same step, so an agent that was
// killed between any two steps continues where it was. Missing information never makes plan stop anything.
func plan(v view) step {
	switch {
	case v.rec.Gone:
		if v.reported && v.drained && !v.rec.LogKept && v.dismissed {
			return step{do: actForget}
		}
		return step{do: actRest}
	case v.rec.Outcome != nil:
		return planEnd(v)
	case v.report.State == guest.StateStarted && !v.rec.Started && v.rec.BootID == v.boot:
		return step{do: actNoteStart} // before the end is checked: a short command has run too
	case v.rec.Overdrawn != "" && v.work.State == container.Running:
		return step{do: actKill}
	}
	if o := ended(v); o != nil {
		if passes(v, o) {
			return step{do: actStartAgain, outcome: o, waiting: "the node died while it was starting and is started again"}
		}
		return step{do: actConclude, outcome: o}
	}
	return planStart(v)
}

// ended returns whether and how the run has come to its end.
func ended(v view) *outcome {
	gone := func(id string, c container.Container) bool {
		return id != "" && (c.State == container.Absent || c.ID != id)
	}
	switch {
	case v.superseded:
		return &outcome{State: agentapi.NodeStopped, Reason: agentapi.ReasonSuperseded}
	case v.rec.GuestID != "" && v.rec.BootID != v.boot:
		return failed(agentapi.ReasonHostInterrupted, "the host was restarted")
	case v.rec.Started && diedWithGuest(v):
		return guestDied()
	case v.work.State == container.Exited && (v.begun() || v.guest.State != container.Exited):
		return exited(v)
	case v.volumes.fenced && v.begun():
		return failed(agentapi.ReasonVolumeFenced, v.volumes.refused)
	case v.dismissed:
		return &outcome{State: agentapi.NodeStopped}
	case v.expired, v.ending && v.rec.Started:
		return &outcome{State: agentapi.NodeStopped, Reason: agentapi.ReasonRunUntil, Detail: "the authorised time is over"}
	case gone(v.rec.WorkID, v.work):
		return failed(agentapi.ReasonHostInterrupted, "the workload's container was removed on the host")
	case gone(v.rec.GuestID, v.guest), v.guest.State == container.Exited:
		if v.interrupted {
			return failed(agentapi.ReasonHostInterrupted, "the host's container runtime was stopped")
		}
		if v.guest.State == container.Exited && v.guest.StartedAt.IsZero() && v.guest.Error != "" {
			// The daemon's message contains what to fix on the host.
			return failed(agentapi.ReasonRuntimeFailed, detailed("the container that holds the node's network could not be "+
				"started", v.guest.Error))
		}
		return guestDied()
	}
	return nil
}

func guestDied() *outcome {
	return failed(agentapi.ReasonGuestDied, "the container that holds the node's network ended")
}

// diedWithGuest reports whether the command failed after the node's network had gone, which only the host can end: its
// exit code is the host's then. An agent that was away may see both ends at once.
func diedWithGuest(v view) bool {
	return !v.interrupted && v.work.State == container.Exited && v.work.ExitCode != 0 &&
		v.guest.State == container.Exited && !v.guest.FinishedAt.IsZero() && v.guest.FinishedAt.Before(v.work.FinishedAt)
}

// exited interprets the end of the workload's container. An end that coincides with the daemon's is the host's,
// whatever the exit code: a program that handles TERM exits with 0. Exit codes of the init before the barrier are not
// the command's.
func exited(v view) *outcome {
	started := v.rec.Started
	ofImage, detail := container.ReasonOfImage(v.work.Error)
	switch {
	case v.interrupted:
		return failed(agentapi.ReasonHostInterrupted, "the host's container runtime was stopped")
	case !started && v.report.State == guest.StateRefused && v.report.Reason != "":
		return failed(v.report.Reason, v.report.Detail)
	case !started && v.work.StartedAt.IsZero() && ofImage != "":
		return failed(ofImage, detail)
	case !started && v.work.StartedAt.IsZero(): // the code is the runtime's own: Docker's for "no such file" is 127, too
		return failed(agentapi.ReasonRuntimeFailed, detailed("the container could not be started", v.work.Error))
	case !started && v.work.ExitCode == guest.ExitNotFound:
		return failed(agentapi.ReasonCommandNotFound, "the image has no such command")
	case !started:
		return failed(agentapi.ReasonRuntimeFailed, detailed(fmt.Sprintf("the workload's container ended with code %d "+
			"before its command was started", v.work.ExitCode), v.work.Error))
	}
	code := v.work.ExitCode
	o := &outcome{State: agentapi.NodeStopped, Reason: agentapi.ReasonExited, ExitCode: &code}
	switch {
	case v.rec.Overdrawn != "":
		o.Detail = v.rec.Overdrawn
	case v.work.OOMKilled:
		o.Detail = "out of memory: the node's limit was reached"
	}
	return o
}

// detailed returns what happened, with the daemon's message if there is one.
func detailed(what, words string) string {
	if words == "" {
		return what
	}
	return what + ": " + words
}

// planStart decides the steps from nothing to a running command.
func planStart(v view) step {
	spec := v.spec()
	switch {
	case v.rec.ImageID == "" && v.want == nil:
		return step{do: actAwaitServer, waiting: "the agent was restarted and waits for the control plane"}
	case v.rec.ImageID == "", v.otherImage():
		return step{do: actPull}
	case spec.ScratchGB > 0 && !v.scratch && !v.begun():
		return step{do: actMakeScratch}
	case hasData(spec) && !v.volumes.made && !v.begun():
		return step{do: actMakeVolumes}
	case v.volumes.refused != "" && !v.begun():
		return step{do: actConclude, outcome: failed(refusedReason(v), v.volumes.refused)}
	case v.lazies.refused != "" && !v.begun():
		return step{do: actConclude, outcome: failed(agentapi.ReasonRestoreFailed, v.lazies.refused)}
	case v.buckets.refused != "" && !v.begun():
		return step{do: actConclude, outcome: failed(agentapi.ReasonBucketUnusable, v.buckets.refused)}
	case v.guest.State != container.Running, v.rec.GuestID == "": // the agent may have died between a start and its note
		return step{do: actStartGuest}
	case !v.overlay:
		return step{do: actStartOverlay}
	}
	if waiting := missingPeers(spec); waiting != "" && !v.rec.Started {
		return step{do: actAwaitPeers, waiting: waiting}
	}
	switch {
	case !v.peers:
		return step{do: actSetPeers}
	case v.staleRelays:
		return step{do: actSetRelays}
	case spec.Nodes > 1 && v.rec.Preflight == nil && !v.begun():
		return step{do: actPreflight}
	case v.rec.Preflight != nil && !v.rec.Preflight.OK:
		return step{do: actConclude, outcome: failed(agentapi.ReasonPreflightFailed, v.rec.Preflight.Detail)}
	case spec.Nodes > 1 && v.withdrawn && !v.begun():
		return step{do: actStandBy}
	case len(spec.Mounts) > 0 && !v.volumes.restored && !v.begun() && v.want == nil:
		return step{do: actAwaitServer, waiting: "the agent was restarted and waits for the control plane"}
	case len(spec.Mounts) > 0 && !v.volumes.restored && !v.begun():
		return step{do: actRestore}
	case (v.buckets.waiting || v.lazies.waiting) && !v.begun() && v.want == nil:
		return step{do: actAwaitServer, waiting: "the agent was restarted and waits for the control plane"}
	case v.lazies.waiting && !v.begun():
		return step{do: actMountLazies}
	case v.buckets.waiting && !v.begun():
		return step{do: actMountBuckets}
	case v.work.State != container.Running && v.want == nil:
		return step{do: actAwaitServer, waiting: "the agent was restarted and waits for the control plane"}
	case v.work.State != container.Running, v.rec.WorkID == "" && v.want != nil:
		return step{do: actStartWork}
	}
	switch v.report.State {
	case guest.StateAtBarrier:
		switch {
		case v.rec.BarrierOpened:
			return step{do: actAwaitStart}
		case v.want != nil && v.want.Go:
			return step{do: actOpenBarrier}
		}
		return step{do: actAwaitGo}
	case guest.StateStarted:
		return step{do: actWatch}
	}
	return step{do: actAwaitInit}
}

// refusedReason returns the reason of a run whose volumes cannot be attached.
func refusedReason(v view) string {
	if v.volumes.fenced {
		return agentapi.ReasonVolumeFenced
	}
	if v.volumes.unreadable {
		return agentapi.ReasonVolumeUnreadable
	}
	return agentapi.ReasonRestoreFailed
}

// planEnd decides the steps from an outcome to nothing left.
func planEnd(v view) step {
	switch {
	case v.work.State == container.Running:
		return step{do: actStopWork}
	case v.work.State != container.Absent && !v.rec.LogSaved:
		return step{do: actKeepLog}
	case v.work.State != container.Absent, v.guest.State != container.Absent, !v.rec.Down:
		return step{do: actTearDown}
	case !v.rec.GPUsFree && !v.waits(v.rec.Outcome):
		return step{do: actFreeGPUs}
	case hasData(v.spec()) && !v.rec.Flushed:
		return step{do: actFlush}
	case v.waits(v.rec.Outcome):
		return step{do: actRest, waiting: "the command has ended; other ranks go on"}
	}
	return step{do: actWipe}
}

// otherImage reports whether the image's name resolved here to another image than the one that the cluster was pinned
// to in the meantime: all ranks run the same image. Once the workload exists it is too late to check, and the check was
// made before: a rank gets no further without its peers' keys, which come with the pin.
func (v view) otherImage() bool {
	pin := v.rec.ImagePin
	return v.want != nil && v.want.Digest != "" && pin != "" && pin != v.want.Digest &&
		v.rec.ImageDigest != v.want.Digest &&
		v.rec.WorkID == "" && v.work.State == container.Absent && !v.rec.Started
}

// missingPeers returns the first rank whose key is not known, or "" if all are known.
func missingPeers(spec agentapi.LeaseSpec) string {
	for _, p := range spec.Network.Peers {
		if p.Key == "" || len(p.Endpoints) == 0 {
			return fmt.Sprintf("rank %d has not joined", p.Rank)
		}
	}
	return ""
}
