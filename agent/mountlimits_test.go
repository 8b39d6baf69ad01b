package agent

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/musterhq/muster/agent/net/firewall"
	"github.com/musterhq/muster/agent/net/netns"
	"github.com/musterhq/muster/agent/workload/container"
	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/id"
)

// withBucket gives the run of a crashing agent a bucket.
func withBucket(t *testing.T, a *Agent, ref agentapi.LeaseRef) {
	t.Helper()
	rec := a.runs.find(ref).rec
	rec.Started, rec.Spec.Egress = false, "full"
	rec.Spec.Buckets = []agentapi.BucketMount{{Bucket: "bkt_a", Path: "/results"}}
	must(t, a.disk.save(ref, rec))
}

// What the mounts of a run move is a part of its traffic, over restarts of the agent, a deleted table, and the time
// after the containers are removed.
func TestWhatMountsMoveIsTraffic(t *testing.T) {
	t.Parallel()
	a, again, ref := crashing(t)
	withBucket(t, a, ref)
	want := func(what string, up, down int64) {
		t.Helper()
		s, _ := a.sync()
		if len(s.Leases) != 1 || s.Leases[0].Traffic == nil ||
			*s.Leases[0].Traffic != (agentapi.Traffic{Up: up, Down: down}) {
			t.Errorf("%s: %+v", what, s.Leases)
		}
	}
	mounts := func(now movedRead) {
		a.network.noteMoved(ref, now, func(rec *record) *movedRead { return &rec.MountsRead })
	}
	a = again()
	mounts(movedRead{Up: 10, Down: 100})
	mounts(movedRead{Up: 30, Down: 100})
	want("counted", 30, 100)
	a = again() // killed
	mounts(movedRead{Up: 31, Down: 105})
	want("by the next agent", 31, 105)
	mounts(movedRead{Up: 5, Down: 1}) // the table was deleted
	want("after a deletion", 36, 106)
	rec := a.runs.find(ref).rec
	rec.Down = true
	must(t, a.disk.save(ref, rec))
	a = again()
	mounts(movedRead{Up: 6, Down: 1})
	want("once the containers are removed", 37, 106)
}

// A process of a run's mounts is in the run's control group, which has limits; the next agent puts it there again, and
// keeps the limits. They are removed when the mounts are, and those of a run that is not known when an agent starts. A
// process of a run that is not known gets no limits, and so mounts nothing.
func TestMountsAreConfined(t *testing.T) {
	a, again, ref := crashing(t)
	withBucket(t, a, ref)
	host8, run := container.Host8(id.New[id.Host]()), mountRun(ref)
	next := func() {
		a = again()
		a.network.host8 = host8
	}
	next()
	t.Cleanup(func() {
		if err := firewall.SweepMounts(t.Context(), host8, func(string) bool { return false }); err != nil {
			t.Log(err)
		}
	})
	err := netns.Empty(func() error {
		cmd := exec.Command("sleep", "1000")
		if err := cmd.Start(); err != nil {
			return err
		}
		defer func() {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		}()
		pid := cmd.Process.Pid
		limited := func(what string, want bool) {
			t.Helper()
			b, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
			must(t, err)
			in := strings.Contains(string(b), "0::/muster_"+host8+"/"+run+"\n")
			_, found, err := firewall.MountsMoved(t.Context(), host8, run)
			if err != nil || in != want || found != want {
				t.Errorf("%s: in the control group: %t, table: %t, want %t; %v", what, in, found, want, err)
			}
		}
		if err := a.network.confine(agentapi.LeaseRef{Lease: ref.Lease, Epoch: 2}, pid); err == nil {
			t.Error("a run that is not known has limits")
		}
		limited("before", false)
		must(t, a.network.confine(ref, pid))
		limited("confined", true)
		next()
		a.network.sweep(t.Context())
		a.network.ensureMounts(t.Context())
		limited("after a restart", true)
		must(t, a.network.confine(ref, pid))
		limited("adopted", true)
		must(t, firewall.RemoveMounts(t.Context(), host8, "lse_other-e1"))
		must(t, cmd.Process.Kill())
		_ = cmd.Wait()
		must(t, a.network.endMounts(t.Context(), ref))
		if _, found, err := firewall.MountsMoved(t.Context(), host8, run); err != nil || found {
			t.Errorf("after the end: table: %t, %v", found, err)
		}
		a.network.ensureMounts(t.Context())
		must(t, a.disk.remove(ref))
		next()
		a.network.sweep(t.Context())
		if _, found, err := firewall.MountsMoved(t.Context(), host8, run); err != nil || found {
			t.Errorf("after a sweep: table: %t, %v", found, err)
		}
		return nil
	})
	must(t, err)
}

// What the volumes of a run move counts towards its traffic, as what its mounts move does, also after restarts of the
// agent and after the loss of the file.
func TestWhatVolumesMoveIsTraffic(t *testing.T) {
	t.Parallel()
	a, again, ref := crashing(t)
	rec := a.runs.find(ref).rec
	rec.Started = false
	rec.Spec.Mounts = []agentapi.Mount{{Volume: "vol_a", Path: "/data"}}
	must(t, a.disk.save(ref, rec))
	a = again()
	count := func(what, file string, up, down int64) {
		t.Helper()
		must(t, os.WriteFile(a.disk.layout(ref).VolumesMoved, []byte(file), 0o600))
		for _, ref := range a.network.restoring() {
			a.network.countVolumes(ref)
		}
		s, _ := a.sync()
		if len(s.Leases) != 1 || s.Leases[0].Traffic == nil ||
			*s.Leases[0].Traffic != (agentapi.Traffic{Up: up, Down: down}) {
			t.Errorf("%s: %+v", what, s.Leases)
		}
	}
	a = again()
	count("counted", `{"up":10,"down":100}`, 10, 100)
	a.network.noteMoved(ref, movedRead{Up: 5}, func(rec *record) *movedRead { return &rec.MountsRead })
	count("with mounts", `{"up":12,"down":100}`, 17, 100)
	a = again() // killed
	count("by the next agent", `{"up":13,"down":105}`, 18, 105)
	count("after the file was lost", `{"up":1,"down":1}`, 19, 106)
	count("damaged", `{`, 19, 106)
	count("and again", `{"up":2,"down":1}`, 20, 106)
}
