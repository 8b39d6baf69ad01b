package agent_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/musterhq/muster/agent"
	"github.com/musterhq/muster/agent/machine/hostinfo"
	"github.com/musterhq/muster/agent/storage/checkpoint"
	"github.com/musterhq/muster/agent/storage/scratch"
	"github.com/musterhq/muster/agent/storage/volume/volumetest"
	"github.com/musterhq/muster/internal/agentapi"
)

// newVolumeHost is a host that holds volumes of a platform.
func newVolumeHost(t *testing.T, p *volumetest.Platform) *host {
	t.Helper()
	h := newScratchHost(t, 0)
	if p := h.scratch.CheckVolumes(t.Context()); p != nil {
		t.Fatalf("%+v", p)
	}
	h.set(func() { h.control.volumes = p })
	return h
}

// mounted is a lease whose job counts steps in a volume.
func (h *host) mounted() agentapi.LeaseSpec {
	spec := h.spec("/job", "steps", "/data")
	spec.Mounts = []agentapi.Mount{{
		Path: "/data", Volume: "vol_a", Name: "results", Mode: agentapi.MountRW, SizeLimit: 100 << 20,
		Domain: "dom", Key: volumetest.Key, Snapshot: agentapi.SnapshotPolicy{OnEnd: true},
	}}
	return spec
}

// request makes the renter's request for a snapshot and waits until it is committed.
func (h *host) request(spec agentapi.LeaseSpec, p *volumetest.Platform) agentapi.Snapshot {
	h.t.Helper()
	id := checkpoint.NewID()
	spec.Mounts = append([]agentapi.Mount(nil), spec.Mounts...)
	spec.Mounts[0].SnapshotNow = id
	h.want(spec)
	var last agentapi.Snapshot
	poll(h.t, "a snapshot on request", func() bool {
		s, ok := p.Last()
		last = s
		return ok && s.ID == id
	})
	return last
}

// goesOn runs the job of a lease that has ended on another host, and checks that it begins where that one ended.
func (h *host) goesOn(before *host, ended agentapi.LeaseSpec) {
	h.t.Helper()
	next := h.launch(h.mounted())
	h.await(next.LeaseRef, "running", running)
	h.want()
	h.await(next.LeaseRef, "gone", gone)
	a, b := before.number(ended.LeaseRef, `ends at step (\d+)`), h.number(next.LeaseRef, `begins at step (\d+)`)
	if a != b {
		h.t.Errorf("it ended at step %d, and the next began at %d", a, b)
	}
}

// step is the job's step on the host.
func (h *host) step(ref agentapi.LeaseRef) int {
	b, err := os.ReadFile(filepath.Join(scratch.Data(h.scratch.VolumePath(ref, "vol_a")), "step"))
	if err != nil {
		return 0
	}
	n, _ := strconv.Atoi(string(b))
	return n
}

func (h *host) number(ref agentapi.LeaseRef, pattern string) int {
	h.t.Helper()
	m := regexp.MustCompile(pattern).FindStringSubmatch(h.kept(ref))
	if m == nil {
		h.t.Fatalf("no %s in %s", pattern, h.kept(ref))
	}
	n, _ := strconv.Atoi(m[1])
	return n
}

// A host is gone for good: the next one has the data of the last commit before the rank starts, and the one that comes
// back is refused and wipes.
func TestAVolumeFollowsToAnotherHost(t *testing.T) {
	t.Parallel()
	p := volumetest.New(t)
	one, two := newVolumeHost(t, p), newVolumeHost(t, p)
	first := one.launch(one.mounted())
	one.await(first.LeaseRef, "running", running)
	poll(t, "some steps", func() bool { return one.step(first.LeaseRef) > 10 })
	before := one.step(first.LeaseRef)
	one.request(first, p)
	after := one.step(first.LeaseRef)
	one.set(func() { one.down = true }) // it cannot be reached any more

	p.Mu.Lock()
	p.Refuse = func(q agentapi.VolumeRequest) *agentapi.VolumeError {
		if q.Lease == first.Lease {
			return &agentapi.VolumeError{Code: agentapi.VolumeFenced, Message: "the volume is written elsewhere"}
		}
		return nil
	}
	p.Mu.Unlock()
	second := two.launch(two.mounted())
	two.await(second.LeaseRef, "running", running)
	poll(t, "a step on the other host", func() bool { return two.step(second.LeaseRef) > after })
	two.want()
	two.await(second.LeaseRef, "gone", gone)
	if n := two.number(second.LeaseRef, `begins at step (\d+)`); n < before || n > after {
		t.Errorf("it began at step %d; the snapshot was taken between steps %d and %d", n, before, after)
	}
	last, _ := p.Last()
	if last.Seq != 2 {
		t.Errorf("the end committed snapshot %d", last.Seq)
	}
	one.set(func() { one.down = false })
	one.want()
	one.await(first.LeaseRef, "gone", gone)
	if now, _ := p.Last(); now.ID != last.ID {
		t.Errorf("a host that came back committed %+v", now)
	}
	for _, h := range []*host{one, two} {
		if room, err := h.scratch.Room(); err != nil || room.Taken != 0 {
			t.Errorf("of a volume is left: %+v %v", room, err)
		}
	}
	// What the end committed is the very last step.
	third := one.launch(one.mounted())
	one.await(third.LeaseRef, "running", running)
	ended := two.number(second.LeaseRef, `ends at step (\d+)`)
	poll(t, "a step of the third run", func() bool { return one.step(third.LeaseRef) > ended })
	one.want()
	one.await(third.LeaseRef, "gone", gone)
	if began := one.number(third.LeaseRef, `begins at step (\d+)`); began != ended {
		t.Errorf("it ended at step %d, and the next began at %d", ended, began)
	}
}

// A snapshot is taken when the cloud of the host's machine announces that it will be stopped, one more at the next
// announcement, and one when the authorised time is about to end.
func TestSnapshotsOnNotice(t *testing.T) {
	t.Parallel()
	p := volumetest.New(t)
	h := newVolumeHost(t, p)
	var says atomic.Value
	says.Store("")
	h.stop()
	h.leaving = func() string { return says.Load().(string) }
	h.start()
	spec := h.mounted()
	spec.Mounts[0].Snapshot = agentapi.SnapshotPolicy{OnNotice: true}
	h.launch(spec)
	h.await(spec.LeaseRef, "running", running)
	poll(t, "some steps", func() bool { return h.step(spec.LeaseRef) > 3 })
	if s, ok := p.Last(); ok {
		t.Fatalf("without a notice: %+v", s)
	}
	taken := func(n int64) {
		t.Helper()
		poll(t, fmt.Sprintf("snapshot %d", n), func() bool { s, ok := p.Last(); return ok && s.Seq == n })
		p.Mu.Lock()
		defer p.Mu.Unlock()
		if cause := p.Causes[n-1]; cause != agentapi.SnapshotByNotice {
			t.Errorf("snapshot %d was taken because of: %s", n, cause)
		}
	}
	says.Store("AWS: spot instance: stop at 12:00")
	taken(1)
	says.Store("")
	h.await(spec.LeaseRef, "a report without the announcement", func(st agentapi.LeaseStatus) bool {
		return st.Leaving == ""
	})
	says.Store("AWS: spot instance: stop at 13:00")
	taken(2)
	h.set(func() { h.until[spec.LeaseRef] = 1_000_000_000 + hostinfo.BootMS() + 100_000 })
	h.agent.Wake(agentapi.Wake{Revision: 1 << 40})
	taken(3)
	h.want()
	h.await(spec.LeaseRef, "gone", gone)
	if s, _ := p.Last(); s.Seq != 3 {
		t.Errorf("the end took a snapshot: %+v", s)
	}
}

// snapdOf returns the pid of a host's process for volumes, of which it has one run.
func (h *host) snapdOf() int {
	want := "snapd\x00" + filepath.Join(h.dir, "snapd") + "/"
	all, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, name := range all {
		if b, err := os.ReadFile(name); err == nil && strings.Contains(string(b), want) {
			pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(name)))
			return pid
		}
	}
	return 0
}

// killsInTest is how often the test kills: MUSTER_TEST_KILLS for a longer run.
func killsInTest() int {
	if n, err := strconv.Atoi(os.Getenv("MUSTER_TEST_KILLS")); err == nil {
		return n
	}
	return 6
}

// The agent and the process for volumes are killed again and again, in every phase of snapshots: the job never
// notices, snapshots go on, and in the end another host has what was committed last.
func TestKillsDuringSnapshots(t *testing.T) {
	t.Parallel()
	p := volumetest.New(t)
	one, two := newVolumeHost(t, p), newVolumeHost(t, p)
	first := one.launch(one.mounted())
	one.await(first.LeaseRef, "running", running)
	poll(t, "some steps", func() bool { return one.step(first.LeaseRef) > 0 })
	for i := range killsInTest() {
		id := checkpoint.NewID()
		first.Mounts = append([]agentapi.Mount(nil), first.Mounts...)
		first.Mounts[0].SnapshotNow = id
		one.want(first)
		time.Sleep(time.Duration(i*37%400) * time.Millisecond) // a kill anywhere is the test
		if i%3 == 2 {
			one.stop()
			one.start()
		} else if pid := one.snapdOf(); pid > 0 {
			if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
				t.Fatal(err)
			}
		}
		poll(t, "the snapshot after a kill", func() bool { s, ok := p.Last(); return ok && s.ID == id })
		at := one.step(first.LeaseRef)
		poll(t, "the job to go on", func() bool { return one.step(first.LeaseRef) > at })
	}
	one.want()
	one.await(first.LeaseRef, "gone", gone)
	two.goesOn(one, first)
}

// A lease ends while its host has no agent. The next agent gets the keys of its volumes, and stores what they have.
func TestALeaseEndsWhileTheAgentIsAway(t *testing.T) {
	t.Parallel()
	p := volumetest.New(t)
	one, two := newVolumeHost(t, p), newVolumeHost(t, p)
	first := one.launch(one.mounted())
	one.await(first.LeaseRef, "running", running)
	poll(t, "some steps", func() bool { return one.step(first.LeaseRef) > 0 })
	one.stop()
	one.want()
	one.start()
	one.await(first.LeaseRef, "gone", gone)
	two.goesOn(one, first)
}

// A volume that is written elsewhere is refused before anything runs, in words.
func TestAVolumeInUseIsRefused(t *testing.T) {
	t.Parallel()
	p := volumetest.New(t)
	p.Refuse = func(agentapi.VolumeRequest) *agentapi.VolumeError {
		return &agentapi.VolumeError{Code: agentapi.VolumeInUse, Message: "cluster train-3 writes the volume"}
	}
	h := newVolumeHost(t, p)
	spec := h.mounted()
	h.want(spec)
	st := h.await(spec.LeaseRef, "failed", func(s agentapi.LeaseStatus) bool { return s.State == agentapi.NodeFailed })
	if st.Reason != agentapi.ReasonRestoreFailed || !strings.Contains(st.Detail, "cluster train-3 writes the volume") ||
		!strings.Contains(st.Detail, "results") {
		t.Errorf("%+v", st)
	}
	h.want()
	h.await(spec.LeaseRef, "gone", gone)
}

// A job makes a folder durable: with the injected binary, without waiting, and from Python. What it may not is refused
// with an exit code of its own. The next node learns the label of what was restored.
func TestAJobsCheckpoints(t *testing.T) {
	t.Parallel()
	p := volumetest.New(t)
	h := newVolumeHost(t, p)
	spec := h.mounted()
	spec.Command = []string{"/job", "checkpoint", "/data"}
	spec.Mounts[0].Snapshot = agentapi.SnapshotPolicy{}
	spec = h.launch(spec)
	h.await(spec.LeaseRef, "running", running)
	poll(t, "the labelled checkpoint", func() bool { s, ok := p.Last(); return ok && s.Label == "step_7" })
	if s, _ := p.Last(); s.Files != 1 {
		t.Errorf("a checkpoint of a folder with one file has %d", s.Files)
	}
	poll(t, "the second checkpoint", func() bool { s, _ := p.Last(); return s.Seq == 2 })
	py := exec.CommandContext(t.Context(), "python3", "-c", `
import muster, sys
try:
    muster.checkpoint("/tmp")
except muster.CheckpointError as e:
    print("refused:", e.code)
c = muster._request("POST", "/v1/self/checkpoints", {"dir": "/data/ckpt", "label": "by python"})
print(muster.wait_for(c)["stage"], muster.durable()[0]["path"])`)
	py.Env = append(os.Environ(), "PYTHONPATH=../docs/launch", "PYTHONDONTWRITEBYTECODE=1",
		"MUSTER_SOCKET="+filepath.Join(h.folder(spec.LeaseRef), "node", "self.sock"))
	if out, err := py.CombinedOutput(); err != nil || string(out) != "refused: dir\ndurable /data\n" {
		t.Errorf("%v: %s", err, out)
	}
	if s, _ := p.Last(); s.Label != "by python" {
		t.Errorf("%+v", s)
	}
	h.want()
	h.await(spec.LeaseRef, "gone", gone)
	text := h.kept(spec.LeaseRef)
	for _, want := range []string{
		`checkpoint /data/ckpt --label step_7: 0 {\"consistency\":\"exact\",\"durable_at\":\"2`,
		`checkpoint --no-wait /data: 0 {`, `checkpoint /tmp: 1 muster-guest: `, `checkpoint /data/out: 1 muster-guest: `,
		`checkpoint: 2 usage: `, `durable: 0 {\"volumes\":[{\"path\":\"/data\"`,
	} {
		if !strings.Contains(text, want) && !strings.Contains(text, strings.ReplaceAll(want, `\"`, `"`)) {
			t.Errorf("want %q in %s", want, text)
		}
	}
	next := h.launch(h.mounted())
	h.await(next.LeaseRef, "running", running)
	h.want()
	h.await(next.LeaseRef, "gone", gone)
	if !strings.Contains(h.kept(next.LeaseRef), "label by python") {
		t.Errorf("the log lacks the label: %s", h.kept(next.LeaseRef))
	}
}

// Purge takes the volumes of leases away, too, wherever their records say that they are.
func TestPurgeRemovesVolumes(t *testing.T) {
	t.Parallel()
	p := volumetest.New(t)
	h := newVolumeHost(t, p)
	spec := h.launch(h.mounted())
	h.await(spec.LeaseRef, "running", running)
	at := h.scratch.VolumePath(spec.LeaseRef, "vol_a")
	h.stop()
	if err := agent.Purge(t.Context(), h.id, h.dir, h.engine, nil); err != nil {
		t.Fatal(err)
	}
	if there, err := scratch.Ready(at); err != nil || there {
		t.Errorf("the volume is still there: %v", err)
	}
}
