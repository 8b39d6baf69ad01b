package agent

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/musterhq/muster/agent/workload/container"
	"github.com/musterhq/muster/agent/workload/guest"
	"github.com/musterhq/muster/internal/agentapi"
)

// at builds the view of a run as far as a start has come; each step includes those before it.
func at(steps ...func(*view)) view {
	v := view{
		boot: "b1",
		want: &agentapi.LeaseSpec{
			Nodes:   2,
			Network: agentapi.Network{Peers: []agentapi.Peer{{Rank: 1, Key: "k", Endpoints: []string{"e"}}}},
		},
	}
	for _, f := range steps {
		f(&v)
	}
	return v
}

var (
	pulled   = func(v *view) { v.rec.ImageID = "img" }
	guestUp  = func(v *view) { pulled(v); v.rec.GuestID, v.rec.BootID = "g", "b1"; v.guest = up("g") }
	joined   = func(v *view) { guestUp(v); v.overlay, v.peers = true, true }
	measured = func(v *view) { joined(v); v.rec.Preflight = &agentapi.Preflight{OK: true} }
	created  = func(v *view) { measured(v); v.rec.WorkID = "w"; v.work = up("w") }
	barrier  = func(v *view) { created(v); v.report.State = guest.StateAtBarrier }
	begun    = func(v *view) { created(v); v.report.State = guest.StateStarted; v.want.Go = true }
	running  = func(v *view) { begun(v); v.rec.BarrierOpened, v.rec.Started = true, true }

	pinned = func(v *view) {
		v.want.Digest, v.rec.ImagePin, v.rec.ImageDigest = "sha256:list", "sha256:other", "sha256:mine"
	}
	scratchy  = func(v *view) { v.want.ScratchGB = 1 }
	mounted   = func(v *view) { v.scratch = true }
	unknown   = func(v *view) { v.want = nil } // the agent was restarted, no server
	dismissed = func(v *view) { v.want, v.dismissed = nil, true }
	expired   = func(v *view) { v.expired = true }
	ending    = func(v *view) { v.ending = true }
	concluded = func(v *view) { v.rec.Outcome = &outcome{State: agentapi.NodeStopped} }
)

// voluminous gives the run a volume.
func voluminous(is volumeView) func(*view) {
	return func(v *view) {
		v.rec.Spec.Mounts = []agentapi.Mount{{Path: "/data", Volume: "vol_a"}}
		if v.want != nil {
			v.want.Mounts = v.rec.Spec.Mounts
		}
		v.volumes = is
	}
}

func neverRan(v *view) { v.work.StartedAt = time.Time{} }

func deadGuest(v *view) { v.guest.State = container.Exited }

func clean(v *view) { v.rec.Down, v.rec.GPUsFree = true, true }

func isDone(v *view) {
	code := 0
	v.rec.Outcome.ExitCode, v.rec.Down = &code, true
	v.work, v.guest, v.overlay = container.Container{}, container.Container{}, false
}

func up(id string) container.Container {
	return container.Container{ID: id, State: container.Running}
}

// guestEnds lets the guest end so much after the workload.
func guestEnds(after time.Duration) func(*view) {
	return func(v *view) {
		v.work.FinishedAt = time.Unix(1_000_000, 0)
		v.guest.State, v.guest.FinishedAt = container.Exited, v.work.FinishedAt.Add(after)
	}
}

func exit(code int) func(*view) {
	return func(v *view) {
		v.work = container.Container{ID: "w", State: container.Exited, ExitCode: code, StartedAt: time.Unix(1, 0)}
	}
}

func TestPlan(t *testing.T) {
	t.Parallel()
	one := func(v *view) { v.want.Nodes, v.want.Network.Peers = 1, nil }
	for _, c := range []struct {
		name string
		v    view
		want action
	}{
		{"nothing yet", at(), actPull},
		{"image is there", at(pulled), actStartGuest},
		{"the cluster runs another image", at(pulled, pinned), actPull},
		{"the cluster's image is a list's", at(guestUp, pinned, func(v *view) { v.rec.ImagePin = "sha256:list" }),
			actStartOverlay},
		{"the cluster was pinned to this machine's", at(guestUp, pinned, func(v *view) { v.rec.ImageDigest = "sha256:list" }),
			actStartOverlay},
		{"another image, too late", at(created, pinned), actAwaitInit},
		{"scratch is asked for", at(pulled, scratchy), actMakeScratch},
		{"scratch is there", at(pulled, scratchy, mounted), actStartGuest},
		{"scratch was lost while it starts", at(guestUp, scratchy), actMakeScratch},
		{"scratch is not made under a workload", at(running, scratchy), actWatch},
		{"volumes are asked for", at(pulled, voluminous(volumeView{})), actMakeVolumes},
		{"volumes are refused", at(pulled, voluminous(volumeView{made: true, refused: "in use"})), actConclude},
		{"volumes wait for the overlay", at(pulled, voluminous(volumeView{made: true})), actStartGuest},
		{"volumes wait for the peers", at(joined, voluminous(volumeView{made: true}), func(v *view) { v.peers = false }),
			actSetPeers},
		{"volumes wait for the measurement", at(joined, voluminous(volumeView{made: true})), actPreflight},
		{"volumes are restored", at(measured, voluminous(volumeView{made: true})), actRestore},
		{"volumes of one node are restored", at(joined, one, voluminous(volumeView{made: true})), actRestore},
		{"volumes are restored, no server", at(measured, voluminous(volumeView{made: true}), unknown), actAwaitServer},
		{"volumes have their data", at(measured, voluminous(volumeView{made: true, restored: true})), actStartWork},
		{"volumes are not restored under a workload", at(running, voluminous(volumeView{made: true})), actWatch},
		{"guest created, not started", at(pulled, func(v *view) { v.guest.State = container.Created }), actStartGuest},
		{"guest runs, not noted", at(guestUp, func(v *view) { v.rec.GuestID, v.rec.BootID = "", "" }), actStartGuest},
		{"guest runs", at(guestUp), actStartOverlay},
		{"guest died", at(joined, deadGuest), actStartAgain},
		{"guest died at the barrier", at(barrier, deadGuest), actStartAgain},
		{"guest died too often", at(barrier, deadGuest, func(v *view) { v.rec.Deaths = maxDeaths }), actConclude},
		{"guest died after the release", at(barrier, deadGuest, func(v *view) { v.rec.BarrierOpened = true }), actConclude},
		{"work died before the barrier", at(created, exit(125)), actStartAgain},
		{"work died with the daemon at the barrier", at(barrier, exit(137), func(v *view) { v.interrupted = true }),
			actStartAgain},
		{"work was removed at the barrier", at(barrier, func(v *view) { v.work = container.Container{} }), actStartAgain},
		{"the host was restarted during the start", at(joined, func(v *view) { v.boot = "b2" }), actStartAgain},
		{"work could not be started, as the guest has died", at(created, exit(127), neverRan), actStartAgain},
		{"work ended with its guest", at(created, exit(127), deadGuest), actStartAgain},
		{"a peer is started again", at(barrier, func(v *view) { v.want.Network.Peers[0].Key = "" }), actAwaitPeers},
		{"a peer is started again, blamed already", at(barrier, func(v *view) {
			v.want.Network.Peers[0].Key,
				v.rec.Preflight.OK = "", false
		}), actAwaitPeers},
		{"a peer came back, not measured yet", at(barrier, func(v *view) { v.rec.Preflight, v.withdrawn = nil, true }),
			actPreflight},
		{"a peer came back", at(barrier, func(v *view) { v.withdrawn = true }), actStandBy},
		{"a peer came back, work not started", at(measured, func(v *view) { v.withdrawn = true }), actStandBy},
		{"a peer came back after the release", at(barrier, func(v *view) { v.withdrawn, v.rec.BarrierOpened = true, true }),
			actAwaitStart},
		{"a peer has not joined", at(joined, func(v *view) { v.want.Network.Peers[0].Key = "" }), actAwaitPeers},
		{"peers are known", at(joined, func(v *view) { v.peers = false }), actSetPeers},
		{"peers are set", at(joined), actPreflight},
		{"the work waits, not measured yet", at(barrier, func(v *view) { v.rec.Preflight = nil }), actPreflight},
		{"go, not measured", at(barrier, func(v *view) { v.rec.Preflight, v.want.Go = nil, true }), actPreflight},
		{"released, figures lost", at(barrier, func(v *view) { v.rec.Preflight, v.rec.BarrierOpened = nil, true }),
			actAwaitStart},
		{"running, figures lost", at(running, func(v *view) { v.rec.Preflight = nil }), actWatch},
		{"alone: nothing to measure", at(joined, one), actStartWork},
		{"measured", at(measured), actStartWork},
		{"work created, not started", at(measured, func(v *view) {
			v.work = container.Container{
				ID:    "w",
				State: container.Created,
			}
		}), actStartWork},
		{"work runs, not noted", at(barrier, func(v *view) { v.rec.WorkID = "" }), actStartWork},
		{"init is silent", at(created), actAwaitInit},
		{"at the barrier", at(barrier), actAwaitGo},
		{"go", at(barrier, func(v *view) { v.want.Go = true }), actOpenBarrier},
		{"released", at(barrier, func(v *view) { v.want.Go, v.rec.BarrierOpened = true, true }), actAwaitStart},
		{"begun", at(begun), actNoteStart},
		{"begun and ended unseen", at(begun, exit(3)), actNoteStart},
		{"running", at(running), actWatch},
		{"running, pins too much", at(running, func(v *view) { v.rec.Overdrawn = "x" }), actKill},
		{"pinned too much, killed", at(running, exit(137), func(v *view) { v.rec.Overdrawn = "x" }), actConclude},
		{"running, overlay died", at(running, func(v *view) { v.overlay = false }), actStartOverlay},
		{"running, a peer was replaced", at(running, func(v *view) { v.peers = false }), actSetPeers},
		{"running, the relays' token was renewed", at(running, func(v *view) { v.staleRelays = true }), actSetRelays},
		{"at the barrier, the relays' token was renewed", at(barrier, func(v *view) { v.staleRelays = true }), actSetRelays},
		{"running, a peer is not known for now", at(running, func(v *view) { v.want.Network.Peers[0].Key = "" }), actWatch},

		{"no server, nothing yet", at(unknown), actAwaitServer},
		{"no server, image is there", at(pulled, unknown), actStartGuest},
		{"no server, measured", at(measured, unknown), actAwaitServer},
		{"no server, at the barrier", at(barrier, unknown), actAwaitGo},
		{"no server, released before", at(barrier, func(v *view) { v.rec.BarrierOpened = true }, unknown), actAwaitStart},
		{"no server, running", at(running, unknown), actWatch},

		{"ended, work runs", at(running, concluded), actStopWork},
		{"ended, work has ended", at(running, exit(0), concluded), actKeepLog},
		{"ended, log looked at", at(running, exit(0), concluded, func(v *view) { v.rec.LogSaved = true }), actTearDown},
		{"ended before the work", at(joined, concluded), actTearDown},
		{"ended before anything: an overlay may be there", at(concluded), actTearDown},
		{"done, all down, others go on", at(running, concluded, isDone), actRest},
		{"done, all down, the time is over", at(running, concluded, isDone, expired), actFreeGPUs},
		{"done, all down, dismissed", at(running, concluded, isDone, dismissed), actFreeGPUs},
		{"done, all down, others go on, it uploads", at(running, concluded, isDone, voluminous(volumeView{})), actFlush},
		{"ended, all down", at(concluded, func(v *view) { v.rec.Down = true }), actFreeGPUs},
		{"ended, GPUs are clean", at(concluded, clean), actWipe},
		{"ended, GPUs are clean, something to upload", at(concluded, clean, voluminous(volumeView{})), actFlush},
		{"ended, something to upload", at(concluded, voluminous(volumeView{}), func(v *view) { v.rec.Down = true }),
			actFreeGPUs},
		{"ended, GPUs are clean, uploaded", at(concluded, clean, voluminous(volumeView{}),
			func(v *view) { v.rec.Flushed = true }), actWipe},
		{"gone, not reported", at(func(v *view) { v.rec.Gone, v.dismissed, v.drained = true, true, true }), actRest},
		{"gone, log not stored", at(func(v *view) {
			v.rec.Gone, v.dismissed, v.drained, v.reported, v.rec.LogKept = true, true, true, true, true
		}), actRest},
		{"gone, usage not taken", at(func(v *view) { v.rec.Gone, v.dismissed, v.reported = true, true, true }), actRest},
		{"gone, still wanted", at(func(v *view) { v.rec.Gone, v.drained, v.reported = true, true, true }), actRest},
		{"gone, known", at(func(v *view) { v.rec.Gone, v.dismissed, v.drained, v.reported = true, true, true, true }),
			actForget},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			if got := plan(c.v); got.do != c.want {
				t.Errorf("does %s, want %s", got.do, c.want)
			}
		})
	}
}

func TestHowRunsEnd(t *testing.T) {
	t.Parallel()
	code := func(n int) *int { return &n }
	for _, c := range []struct {
		name string
		v    view
		want *outcome // nil: it does not
	}{
		{"exit 0", at(running, exit(0)), &outcome{
			State:    agentapi.NodeStopped,
			Reason:   agentapi.ReasonExited,
			ExitCode: code(0),
		}},
		{"exit 127 of the command itself", at(running, exit(127)), &outcome{
			State:    agentapi.NodeStopped,
			Reason:   agentapi.ReasonExited,
			ExitCode: code(127),
		}},
		{"out of memory", at(running, exit(137), func(v *view) { v.work.OOMKilled = true }),
			&outcome{
				State:    agentapi.NodeStopped,
				Reason:   agentapi.ReasonExited,
				Detail:   "out of memory: the node's limit was reached",
				ExitCode: code(137),
			}},
		{"exit 0 with the daemon", at(running, exit(0), func(v *view) { v.interrupted = true }),
			failed(agentapi.ReasonHostInterrupted, "the host's container runtime was stopped")},
		{"no such command", at(created, exit(127)), failed(agentapi.ReasonCommandNotFound, "the image has no such command")},
		{"could not be started too often", at(created, exit(127), neverRan,
			func(v *view) { v.rec.Deaths, v.work.Error = maxDeaths, "lstat ns/net" }),
			failed(agentapi.ReasonRuntimeFailed, "the container could not be started: lstat ns/net")},
		{"the image's user does not exist", at(created, exit(127), neverRan, func(v *view) {
			v.rec.Deaths, v.work.Error = maxDeaths, "unable to find user ghost: no matching entries in passwd file"
		}), failed(agentapi.ReasonImageRefused, "unable to find user ghost: no matching entries in passwd file")},
		{"its guest died too often under it", at(created, exit(127), deadGuest, func(v *view) { v.rec.Deaths = maxDeaths }),
			failed(agentapi.ReasonGuestDied, "the container that holds the node's network ended")},
		{"killed at the barrier too often", at(barrier, exit(137), func(v *view) { v.rec.Deaths = maxDeaths }),
			failed(agentapi.ReasonRuntimeFailed, "the workload's container ended with code 137 before its command was started")},
		{"refused by the init", at(created, exit(126), func(v *view) {
			v.report = guest.Workload{State: guest.StateRefused, Reason: agentapi.ReasonRuntimeFailed, Detail: "not executable"}
		}), failed(agentapi.ReasonRuntimeFailed, "not executable")},
		{"guest died", at(running, func(v *view) { v.guest.State = container.Exited }),
			failed(agentapi.ReasonGuestDied, "the container that holds the node's network ended")},
		{"killed after its guest had died", at(running, exit(137), guestEnds(-time.Second)),
			failed(agentapi.ReasonGuestDied, "the container that holds the node's network ended")},
		{"ends in order after its guest had died", at(running, exit(0), guestEnds(-time.Second)), &outcome{
			State: agentapi.NodeStopped, Reason: agentapi.ReasonExited, ExitCode: code(0),
		}},
		{"killed before its guest died", at(running, exit(137), guestEnds(time.Second)), &outcome{
			State: agentapi.NodeStopped, Reason: agentapi.ReasonExited, ExitCode: code(137),
		}},
		{"the daemon refuses to start the guest, too often", at(pulled, func(v *view) {
			v.rec.Deaths, v.rec.GuestID, v.guest = maxDeaths, "", container.Container{
				ID:       "g",
				State:    container.Exited,
				ExitCode: 128,
				Error:    "apparmor_parser: not found",
			}
		}), failed(agentapi.ReasonRuntimeFailed, "the container that holds the node's network could not be started: "+
			"apparmor_parser: not found")},
		{"guest is another container", at(running, func(v *view) { v.guest.ID = "x" }),
			failed(agentapi.ReasonGuestDied, "the container that holds the node's network ended")},
		{"work was removed by hand", at(running, func(v *view) { v.work = container.Container{} }),
			failed(agentapi.ReasonHostInterrupted, "the workload's container was removed on the host")},
		{"the host was restarted", at(running, func(v *view) { v.boot = "b2" }),
			failed(agentapi.ReasonHostInterrupted, "the host was restarted")},
		{"preflight failed", at(measured, func(v *view) { v.rec.Preflight = &agentapi.Preflight{Detail: "slow"} }),
			failed(agentapi.ReasonPreflightFailed, "slow")},
		{"dismissed", at(running, dismissed), &outcome{State: agentapi.NodeStopped}},
		{"dismissed before anything", at(dismissed), &outcome{State: agentapi.NodeStopped}},
		{"superseded", at(running, dismissed, func(v *view) { v.superseded = true }), &outcome{
			State:  agentapi.NodeStopped,
			Reason: agentapi.ReasonSuperseded,
		}},
		{"time is over", at(running, expired), &outcome{
			State:  agentapi.NodeStopped,
			Reason: agentapi.ReasonRunUntil,
			Detail: "the authorised time is over",
		}},
		{"time is nearly over", at(running, ending), &outcome{
			State:  agentapi.NodeStopped,
			Reason: agentapi.ReasonRunUntil,
			Detail: "the authorised time is over",
		}},
		{"time is over, no server", at(running, expired, unknown), &outcome{
			State:  agentapi.NodeStopped,
			Reason: agentapi.ReasonRunUntil,
			Detail: "the authorised time is over",
		}},
		{"no server", at(running, unknown), nil},
		{"no server, no overlay", at(running, unknown, func(v *view) { v.overlay = false }), nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := plan(c.v)
			if (s.do == actConclude) != (c.want != nil) {
				t.Fatalf("does %s", s.do)
			}
			if diff := cmp.Diff(c.want, s.outcome); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestUnknownNeverStops: whatever has been reached, without a word from the server nothing is ended.
func TestUnknownNeverStops(t *testing.T) {
	t.Parallel()
	for i, reached := range []func(*view){pulled, guestUp, joined, measured, created, barrier, begun, running} {
		if s := plan(at(reached, unknown)); s.do.ending() {
			t.Errorf("stage %d: does %s", i, s.do)
		}
	}
}

// A node that died while starting reports that and why until it reports its address again. A failed preflight is
// reported only when the run ends because of it.
func TestWhatIsSaidOfANodeThatStartsAgain(t *testing.T) {
	t.Parallel()
	died := func(v *view) {
		v.rec.Died = failed(agentapi.ReasonGuestDied, "the container that holds the node's network ended")
	}
	v := at(joined, died)
	st := statusOf(agentapi.LeaseRef{}, v, agentapi.Progress{})
	if !st.StartsAgain || st.Trouble != agentapi.ReasonGuestDied || st.TroubleDetail == "" ||
		st.State != agentapi.NodeStarting {
		t.Errorf("while its guest is dead: %+v", st)
	}
	v.rec.WGKey = "key"
	if st := statusOf(agentapi.LeaseRef{}, v, agentapi.Progress{}); st.StartsAgain || st.Trouble != "" ||
		st.State != agentapi.NodeJoining {
		t.Errorf("back: %+v", st)
	}
	v = at(barrier, func(v *view) { v.rec.Preflight = &agentapi.Preflight{Detail: "rank 1 does not answer"} })
	if st := statusOf(agentapi.LeaseRef{}, v, agentapi.Progress{}); st.State != agentapi.NodeJoining || st.AtBarrier ||
		st.Preflight != nil {
		t.Errorf("not concluded: %+v", st)
	}
	v.rec.Outcome = failed(agentapi.ReasonPreflightFailed, "rank 1 does not answer")
	if st := statusOf(agentapi.LeaseRef{}, v, agentapi.Progress{}); st.State != agentapi.NodeFailed ||
		st.Preflight == nil {
		t.Errorf("concluded: %+v", st)
	}
}
