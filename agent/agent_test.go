package agent_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/musterhq/muster/agent/machine/hostinfo"
	"github.com/musterhq/muster/agent/net/overlay"
	"github.com/musterhq/muster/agent/workload/container"

	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/id"
)

func TestALeaseFromPullToGone(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	spec := h.spec("/job", "exit", "7")
	h.want(spec)
	st := h.await(spec.LeaseRef, "ready", ready)
	if st.WGKey == "" || len(st.Endpoints) == 0 || !strings.HasPrefix(st.ImageDigest, "sha256:") || st.Started {
		t.Errorf("ready: %s", replies(st))
	}
	spec.Go = true
	h.want(spec)
	st = h.await(spec.LeaseRef, "exited", func(st agentapi.LeaseStatus) bool { return st.ExitCode != nil })
	if *st.ExitCode != 7 || st.State != agentapi.NodeStopped || st.Reason != agentapi.ReasonExited || !st.Started {
		t.Errorf("exited: %s", replies(st))
	}
	st = h.await(spec.LeaseRef, "gone", gone)
	if !st.LogKept || *st.ExitCode != 7 {
		t.Errorf("gone: %s", replies(st))
	}
	if list := h.containers(); len(list) != 0 {
		t.Errorf("left behind: %+v", list)
	}
	if text := h.kept(spec.LeaseRef); !strings.Contains(text, "hello from rank 0 1 s3cret-") ||
		!strings.Contains(text, `"e":true,"l":"leaving with 7"`) {
		t.Errorf("log: %s", text)
	}
	// The server wants it still, as after a lost answer: it does not run again.
	h.want(spec)
	h.await(spec.LeaseRef, "still gone", gone)
	h.set(func() { h.stored = []agentapi.LeaseRef{spec.LeaseRef} })
	h.want()
	h.awaitReport("nothing left", func(s agentapi.Sync) bool { return len(s.Leases) == 0 && s.Full })
	if left, _ := filepath.Glob(filepath.Join(h.dir, "leases", "*")); len(left) != 0 {
		t.Errorf("folders left: %v", left)
	}
	h.want(spec)
	h.await(spec.LeaseRef, "refused by its tombstone", func(st agentapi.LeaseStatus) bool {
		return st.Gone &&
			*st.ExitCode == 7
	})
	h.awaitUsage(spec.LeaseRef)
	h.noSecrets()
}

// noSecrets checks that the renter's environment is nowhere on the host's disk but in his own log.
func (h *host) noSecrets() {
	h.t.Helper()
	err := filepath.WalkDir(h.dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() || d.Name() == "log.jsonl" {
			return err
		}
		if b, err := os.ReadFile(path); err == nil && bytes.Contains(b, []byte("s3cret-")) {
			h.t.Errorf("the renter's environment is in %s", path)
		}
		return nil
	})
	if err != nil {
		h.t.Error(err)
	}
}

func TestStopIsInOrderAndKeepsTheLog(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	spec := h.launch(h.spec("/job", "linger"))
	h.await(spec.LeaseRef, "running", running)
	h.want()
	st := h.await(spec.LeaseRef, "gone", gone)
	if st.State != agentapi.NodeStopped || st.Reason != "" || st.ExitCode != nil {
		t.Errorf("%s", replies(st))
	}
	if text := h.kept(spec.LeaseRef); !strings.Contains(text, "received SIGTERM") {
		t.Errorf("log: %s", text)
	}
	h.set(func() {
		if seen := h.states[spec.LeaseRef]; !slices.Contains(seen, agentapi.NodeStopping) {
			t.Errorf("states: %v", seen)
		}
	})
}

func TestReasonsOfFailure(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	absent, command := h.spec(), h.spec("/nothing")
	absent.Image = strings.Replace(h.image, "job:1", "none:1", 1)
	h.want(absent, command)
	for ref, reason := range map[agentapi.LeaseRef]string{
		absent.LeaseRef:  agentapi.ReasonImageNotFound,
		command.LeaseRef: agentapi.ReasonCommandNotFound,
	} {
		st := h.await(ref, "gone", gone)
		if st.State != agentapi.NodeFailed || st.Reason != reason || st.Started {
			t.Errorf("want %s: %s", reason, replies(st))
		}
	}
}

// The entry point of the spec runs in a real container, in place of the image's.
func TestEntrypointOfTheSpecRuns(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	spec := h.spec("7")
	spec.Image = strings.Replace(h.image, "job:1", "entry:1", 1)
	pushJobAs(t, spec.Image, func(c *v1.ConfigFile) { c.Config.Entrypoint = []string{"/nothing"} })
	spec.Entrypoint = []string{"/job", "exit"}
	h.launch(spec)
	st := h.await(spec.LeaseRef, "done", done)
	if st.ExitCode == nil || *st.ExitCode != 7 {
		t.Errorf("%s", replies(st))
	}
	if text := h.kept(spec.LeaseRef); !strings.Contains(text, "leaving with 7") {
		t.Errorf("log: %s", text)
	}
}

func TestAWorkloadIsShutIn(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	spec := h.launch(h.spec("/job", "see", strings.Split(h.image, "/")[0]))
	h.await(spec.LeaseRef, "done", done)
	text := h.kept(spec.LeaseRef)
	for _, want := range []string{"dial true", "hosts read-only true", "no raw socket true", "no vsock true",
		"no mount true", "hostname node-0", "knows node-0 true", "devices void"} {
		if !strings.Contains(text, want) {
			t.Errorf("want %q in %s", want, text)
		}
	}
}

func TestWithoutAServerALeaseRunsToItsEnd(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	spec := h.spec()
	spec.GraceS = 2
	spec = h.launch(spec)
	h.await(spec.LeaseRef, "running", running)
	until := 1_000_000_000 + hostinfo.BootMS() + 5000
	h.set(func() { h.until[spec.LeaseRef] = until })
	h.agent.Wake(agentapi.Wake{Revision: 1 << 40})
	poll(t, "the extension on the disk", func() bool {
		b, err := os.ReadFile(filepath.Join(h.dir, "leases", spec.Lease+"-e1", "lease.json"))
		return err == nil && bytes.Contains(b, []byte(fmt.Sprintf(`"run_until_ms":%d`, until)))
	})
	h.set(func() { h.down = true })
	h.stop()
	h.start() // without a server, from what the disk knows
	ended := func() bool {
		c, err := h.engine.Inspect(t.Context(), spec.LeaseRef, container.Work)
		return err == nil && c.State != container.Running
	}
	poll(t, "the workload's end", ended)
	if early := until - 1_000_000_000 - hostinfo.BootMS(); early > 2000 { // SIGTERM comes a grace period before
		t.Errorf("ended %d ms before its time", early)
	}
	h.set(func() { h.down = false })
	st := h.await(spec.LeaseRef, "gone", gone)
	if st.Reason != agentapi.ReasonRunUntil {
		t.Errorf("%s", replies(st))
	}
}

// poll waits for a condition that nothing signals.
func poll(t *testing.T, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(3 * time.Minute) // on a busy machine, a hasty test fails for nothing
	for !ok() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("%s did not come", what)
		}
	}
}

func TestGuestDeathFailsTheNode(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	spec := h.launch(h.spec())
	h.await(spec.LeaseRef, "running", running)
	if err := h.engine.Stop(t.Context(), spec.LeaseRef, container.Guest, 0); err != nil {
		t.Fatal(err)
	}
	st := h.await(spec.LeaseRef, "gone", gone)
	if st.State != agentapi.NodeFailed || st.Reason != agentapi.ReasonGuestDied {
		t.Errorf("%s", replies(st))
	}
}

func TestADeadOverlayIsStartedAgain(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	spec := h.launch(h.spec())
	before := h.await(spec.LeaseRef, "running", running)
	if err := overlay.Stop(t.Context(), filepath.Join(h.dir, "leases", spec.Lease+"-e1")); err != nil {
		t.Fatal(err)
	}
	poll(t, "another overlay process", func() bool {
		pid, err := exec.Command("pgrep", "-f", "overlay "+h.dir).Output()
		return err == nil && len(pid) > 0
	})
	after := h.await(spec.LeaseRef, "running", running)
	if after.WGKey != before.WGKey || after.Endpoints[0] != before.Endpoints[0] {
		t.Errorf("key and port did not survive: %s, then %s", replies(before), replies(after))
	}
}

func TestANewEpochReplacesTheOld(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	old := h.launch(h.spec())
	h.await(old.LeaseRef, "running", running)
	next := old
	next.Epoch, next.Go = 2, false
	h.want(next)
	st := h.await(old.LeaseRef, "gone", gone)
	if st.Reason != agentapi.ReasonSuperseded {
		t.Errorf("%s", replies(st))
	}
	h.await(next.LeaseRef, "ready", ready)
	for _, c := range h.containers() {
		if c.Ref != next.LeaseRef {
			t.Errorf("the old epoch still has %+v", c)
		}
	}
	h.set(func() { // a server that is behind wants the old epoch again
		h.desired.Revision = 1
		h.desired.Leases = []agentapi.LeaseSpec{old}
	})
	h.agent.Wake(agentapi.Wake{Revision: 1 << 40})
	h.awaitReport("the new epoch alone alive", func(s agentapi.Sync) bool {
		return slices.ContainsFunc(s.Leases, func(l agentapi.LeaseStatus) bool {
			return l.LeaseRef == next.LeaseRef &&
				ready(l)
		})
	})
}

// TestARestartedAgentAdopts kills the agent as soon as it has reported each state, and starts another.
func TestARestartedAgentAdopts(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	spec := h.spec()
	h.want(spec)
	for _, state := range []agentapi.NodeState{agentapi.NodePulling, agentapi.NodeStarting, agentapi.NodeJoining,
		agentapi.NodeReady} {
		h.await(spec.LeaseRef, "at "+string(state),
			func(st agentapi.LeaseStatus) bool { return stage(st.State) >= stage(state) })
		h.stop()
		h.start()
	}
	h.await(spec.LeaseRef, "ready", ready)
	before := h.containers()
	spec.Go = true
	h.want(spec)
	h.await(spec.LeaseRef, "running", running)
	h.stop()
	h.start()
	h.await(spec.LeaseRef, "running", running)
	h.set(func() {
		if h.doubted[spec.LeaseRef] {
			t.Error("a report said that the run is not well, before it was looked at")
		}
	})
	if after := h.containers(); len(after) != 2 || !slices.ContainsFunc(before,
		func(c container.Container) bool { return c.ID == after[0].ID }) {
		t.Errorf("not adopted: %+v, then %+v", before, after)
	}
	h.want()
	h.await(spec.LeaseRef, "stopping",
		func(st agentapi.LeaseStatus) bool { return stage(st.State) >= stage(agentapi.NodeStopping) })
	h.stop()
	h.start()
	h.await(spec.LeaseRef, "gone", gone)
	h.awaitUsage(spec.LeaseRef)
}

// TestARankThatIsDoneKeepsItsPlace ends a command with 0 while the server wants its lease still: other ranks go on.
// Nothing runs any more, and the time counts until the server lets go.
func TestARankThatIsDoneKeepsItsPlace(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	spec := h.launch(h.spec("/job", "exit", "0"))
	st := h.await(spec.LeaseRef, "done", func(st agentapi.LeaseStatus) bool {
		return done(st) &&
			len(h.containers()) == 0
	})
	if st.Gone || st.ExitBootMS <= 0 || st.ExitBootMS > hostinfo.BootMS() {
		t.Errorf("done at %d: %s", hostinfo.BootMS(), replies(st))
	}
	h.stop()
	h.start()
	poll(t, "a while later", func() bool { return hostinfo.BootMS() > st.ExitBootMS+1500 })
	again := h.await(spec.LeaseRef, "done", done)
	if again.ExitBootMS != st.ExitBootMS {
		t.Errorf("it ended at %d, and after a restart at %d", st.ExitBootMS, again.ExitBootMS)
	}
	h.want()
	h.await(spec.LeaseRef, "gone", gone)
	h.awaitUsage(spec.LeaseRef)
	h.set(func() {
		segs := h.segs[spec.LeaseRef]
		if last := segs[len(segs)-1]; last.BootEndMS < st.ExitBootMS+1500 {
			t.Errorf("done at %d, counted to %+v", st.ExitBootMS, last)
		}
	})
}

func stage(s agentapi.NodeState) int {
	return slices.Index([]agentapi.NodeState{agentapi.NodePulling, agentapi.NodeStarting, agentapi.NodeJoining,
		agentapi.NodeReady,
		agentapi.NodeStopping, agentapi.NodeStopped, agentapi.NodeFailed}, s)
}

// twoNodes starts a cluster of two hosts until each has made its keys. specs have the peers' keys; the hosts do not
// yet.
func twoNodes(t *testing.T, command ...string) (hosts [2]*host, specs [2]agentapi.LeaseSpec) {
	t.Helper()
	cluster := id.New[id.Cluster]().String()
	hosts = [2]*host{newHost(t), newHost(t)}
	for rank, h := range hosts {
		s := h.spec(command...)
		s.Cluster, s.Rank, s.Nodes = cluster, rank, 2
		s.Network.Address = fmt.Sprintf("10.77.0.%d", rank+1)
		s.Network.Peers = []agentapi.Peer{{Rank: 1 - rank, Address: fmt.Sprintf("10.77.0.%d", 2-rank)}}
		specs[rank] = s
		h.want(s)
	}
	for rank, h := range hosts {
		st := h.await(specs[rank].LeaseRef, "waiting for its peer",
			func(st agentapi.LeaseStatus) bool { return st.WGKey != "" && st.Progress.Step == "peers" })
		if want := fmt.Sprintf("rank %d has not joined", 1-rank); st.Progress.WaitingFor != want {
			t.Errorf("rank %d waits for %q, want %q", rank, st.Progress.WaitingFor, want)
		}
		peer := specs[1-rank].Network.Peers[0]
		peer.Key, peer.Endpoints = st.WGKey, st.Endpoints
		specs[1-rank].Network.Peers = []agentapi.Peer{peer} // a new slice: the agent reads the old one
	}
	return hosts, specs
}

// TestTwoNodesMeet runs a cluster of two hosts: each learns the other's key from the server, both measure the overlay,
// and the command runs on both.
func TestTwoNodesMeet(t *testing.T) {
	t.Parallel()
	hosts, specs := twoNodes(t, "/job", "exit", "0")
	for rank, h := range hosts {
		h.want(specs[rank])
	}
	for rank, h := range hosts {
		st := h.await(specs[rank].LeaseRef, "ready", ready)
		if p := st.Preflight; p == nil || !p.OK || p.BusbwGbps <= 0 || len(p.RTTMicros) != 2 {
			t.Errorf("rank %d: preflight %+v", rank, p)
		}
	}
	for rank, h := range hosts {
		specs[rank].Go = true
		h.want(specs[rank])
	}
	for rank, h := range hosts {
		if st := h.await(specs[rank].LeaseRef, "done", done); *st.ExitCode != 0 {
			t.Errorf("rank %d: %s", rank, replies(st))
		}
		if text := h.kept(specs[rank].LeaseRef); !strings.Contains(text, fmt.Sprintf("hello from rank %d 2", rank)) {
			t.Errorf("rank %d: %s", rank, text)
		}
	}
}
