package agent_test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	"github.com/musterhq/muster/agent/leasefiles"
	"github.com/musterhq/muster/agent/machine/hostinfo"
	"github.com/musterhq/muster/agent/net/firewall"
	"github.com/musterhq/muster/agent/net/overlay"
	"github.com/musterhq/muster/agent/workload/container"
	"github.com/musterhq/muster/internal/agentapi"
)

// folder is a lease's folder on the host.
func (h *host) folder(ref agentapi.LeaseRef) string {
	return filepath.Join(h.dir, "leases", fmt.Sprintf("%s-e%d", ref.Lease, ref.Epoch))
}

// edit changes a lease's record while no agent runs.
func (h *host) edit(ref agentapi.LeaseRef, f func(record map[string]any)) {
	h.t.Helper()
	path := filepath.Join(h.folder(ref), "lease.json")
	b, err := os.ReadFile(path)
	if err != nil {
		h.t.Fatal(err)
	}
	rec := map[string]any{}
	if err := json.Unmarshal(b, &rec); err != nil {
		h.t.Fatal(err)
	}
	f(rec)
	if b, err = json.Marshal(rec); err == nil {
		err = os.WriteFile(path, b, 0o600)
	}
	if err != nil {
		h.t.Fatal(err)
	}
}

// An agent that dies after it started the containers and before it recorded that leaves containers that no record
// names. The next agent adopts them, and the run counts.
func TestStartedAndNotNoted(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	spec := h.spec("/job", "exit", "0")
	h.want(spec)
	h.await(spec.LeaseRef, "ready", ready)
	before := h.containers()
	h.stop()
	h.edit(spec.LeaseRef, func(rec map[string]any) {
		for _, k := range []string{"boot_id", "guest_id", "work_id"} {
			delete(rec, k)
		}
	})
	h.start()
	spec.Go = true
	h.want(spec)
	st := h.await(spec.LeaseRef, "done", done)
	if *st.ExitCode != 0 || !st.Started || st.StartBootMS <= 0 || st.StartBootMS > st.ExitBootMS {
		t.Errorf("%s", replies(st))
	}
	if len(before) != 2 {
		t.Errorf("%+v", before)
	}
}

// An agent that noted the release and died before it released has the next one do it.
func TestReleaseNotedAndNotDone(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	spec := h.spec("/job", "exit", "0")
	h.want(spec)
	h.await(spec.LeaseRef, "ready", ready)
	h.stop()
	h.edit(spec.LeaseRef, func(rec map[string]any) { rec["released"] = true })
	h.start()
	spec.Go = true
	h.want(spec)
	h.await(spec.LeaseRef, "done", done)
}

// A guest or a workload that dies before the barrier takes nothing with it: the node is started again.
func TestANodeThatDiesWhileItStartsIsStartedAgain(t *testing.T) {
	t.Parallel()
	for _, role := range []container.Role{container.Guest, container.Work} {
		t.Run(string(role), func(t *testing.T) {
			t.Parallel()
			h := newHost(t)
			spec := h.spec("/job", "exit", "0")
			h.want(spec)
			h.await(spec.LeaseRef, "ready", ready)
			before, err := h.engine.Inspect(t.Context(), spec.LeaseRef, container.Guest)
			if err != nil {
				t.Fatal(err)
			}
			if err := h.engine.Stop(t.Context(), spec.LeaseRef, role, 0); err != nil {
				t.Fatal(err)
			}
			poll(t, "another guest", func() bool {
				c, err := h.engine.Inspect(t.Context(), spec.LeaseRef, container.Guest)
				return err == nil && c.State == container.Running && c.ID != before.ID
			})
			spec.Go = true
			h.want(spec)
			if st := h.await(spec.LeaseRef, "done", done); *st.ExitCode != 0 {
				t.Errorf("%s", replies(st))
			}
		})
	}
}

// A preflight lives through the deaths of the agent, the overlay and the guest of a rank that measures: the other rank
// comes late here, so that they die in the middle of it. One that has measured and dies at its barrier comes back
// there.
func TestAPreflightLivesThroughDeaths(t *testing.T) {
	t.Parallel()
	hosts, specs := twoNodes(t, "/job", "exit", "0")
	first, ref := hosts[0], specs[0].LeaseRef
	measuring := func() {
		first.await(ref, "measuring", func(st agentapi.LeaseStatus) bool { return st.Progress.Step == "preflight" })
	}
	guestDies := func() {
		before, err := first.engine.Inspect(t.Context(), ref, container.Guest)
		if err == nil {
			err = first.engine.Stop(t.Context(), ref, container.Guest, 0)
		}
		if err != nil {
			t.Fatal(err)
		}
		poll(t, "another guest", func() bool {
			c, err := first.engine.Inspect(t.Context(), ref, container.Guest)
			return err == nil && c.State == container.Running && c.ID != before.ID
		})
	}
	first.want(specs[0])
	measuring()
	guestDies()
	measuring()
	first.stop()
	first.start()
	measuring()
	if err := overlay.Stop(t.Context(), first.folder(ref)); err != nil {
		t.Fatal(err)
	}
	hosts[1].want(specs[1])
	for rank, h := range hosts {
		if st := h.await(specs[rank].LeaseRef, "ready", ready); st.Preflight == nil || !st.Preflight.OK {
			t.Errorf("rank %d: %s", rank, replies(st))
		}
	}
	guestDies()
	for rank, h := range hosts {
		specs[rank].Go = true
		h.want(specs[rank])
	}
	for rank, h := range hosts {
		if st := h.await(specs[rank].LeaseRef, "done", done); *st.ExitCode != 0 {
			t.Errorf("rank %d: %s", rank, replies(st))
		}
	}
}

// While a rank starts again and its address is unknown, the other ranks neither measure nor blame anyone. Once it has
// reported its address, all measure, and ranks that had measured before wait for it.
func TestAPreflightWaitsForARankThatIsStartedAgain(t *testing.T) {
	t.Parallel()
	hosts, specs := twoNodes(t, "/job", "exit", "0")
	first, ref := hosts[0], specs[0].LeaseRef
	away := specs[0]
	away.Network.Peers = []agentapi.Peer{{Rank: 1, Address: specs[0].Network.Peers[0].Address}}
	waits := func(st agentapi.LeaseStatus) bool { return st.Progress.WaitingFor == "rank 1 has not joined" }
	first.want(specs[0])
	first.await(ref, "measuring", func(st agentapi.LeaseStatus) bool { return st.Progress.Step == "preflight" })
	first.want(away)
	if st := first.await(ref, "waiting", waits); st.State != agentapi.NodeJoining || st.Preflight != nil {
		t.Errorf("%s", replies(st))
	}
	both := func() {
		for rank, h := range hosts {
			h.want(specs[rank])
		}
		for rank, h := range hosts {
			if st := h.await(specs[rank].LeaseRef, "ready", func(st agentapi.LeaseStatus) bool {
				return ready(st) &&
					!waits(st)
			}); st.Preflight == nil || !st.Preflight.OK {
				t.Errorf("rank %d: %s", rank, replies(st))
			}
		}
	}
	both()
	first.want(away)
	if st := first.await(ref, "waiting", waits); !ready(st) || !st.Preflight.OK {
		t.Errorf("%s", replies(st))
	}
	both()
	for rank, h := range hosts {
		specs[rank].Go = true
		h.want(specs[rank])
	}
	for rank, h := range hosts {
		if st := h.await(specs[rank].LeaseRef, "done", done); *st.ExitCode != 0 {
			t.Errorf("rank %d: %s", rank, replies(st))
		}
	}
}

// A firewall that was flushed under a running node is restored automatically.
func TestAFlushedFirewallComesBack(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	h.stop()
	h.firewall = time.Second
	h.start()
	spec := h.launch(h.spec())
	h.await(spec.LeaseRef, "running", running)
	if err := firewall.Remove(t.Context(), container.Host8(h.id)); err != nil {
		t.Fatal(err)
	}
	poll(t, "the firewall", func() bool {
		return exec.Command("nft", "list", "table", "inet", "muster_"+container.Host8(h.id)).Run() == nil
	})
}

// bootTime returns the wall time at which the boot's clock was 0. If too much time passes between the two readings, it
// reads both again.
func bootTime() time.Time {
	for {
		before := hostinfo.BootMS()
		now := time.Now().Round(0)
		if hostinfo.BootMS()-before <= 1 {
			return now.Add(-time.Duration(before) * time.Millisecond)
		}
	}
}

var slept = regexp.MustCompile(`slept (\d+) (\d+)`)

// A job that runs and ends while its agent is dead is proved from its start to its end, and no further.
func TestARunNobodySawIsProved(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	spec := h.spec("/job", "nap", "2")
	h.want(spec)
	h.await(spec.LeaseRef, "ready", ready)
	h.stop()
	if err := leasefiles.At(h.folder(spec.LeaseRef)).OpenBarrier(spec.LeaseRef); err != nil {
		t.Fatal(err)
	}
	var work container.Container
	poll(t, "the workload's end", func() bool {
		var err error
		work, err = h.engine.Inspect(t.Context(), spec.LeaseRef, container.Work)
		return err == nil && work.State == container.Exited
	})
	h.start()
	spec.Go = true
	h.want(spec)
	st := h.await(spec.LeaseRef, "done", done)
	var from, until int64
	if m := slept.FindStringSubmatch(h.kept(spec.LeaseRef)); m != nil {
		fmt.Sscan(m[1]+" "+m[2], &from, &until)
	}
	h.want()
	h.await(spec.LeaseRef, "gone", gone)
	h.awaitUsage(spec.LeaseRef)
	booted := bootTime()
	h.set(func() {
		segs := h.segs[spec.LeaseRef]
		// The anchor's clock is the boot's plus 10⁹ ms.
		boot := func(at time.Time) int64 { return at.Sub(booted).Milliseconds() }
		first, last := boot(time.UnixMilli(from)), boot(time.UnixMilli(until))
		const slack = 20 // ms of rounding between two clocks
		if st.StartBootMS < boot(work.StartedAt)-slack || st.ExitBootMS > boot(work.FinishedAt)+slack ||
			st.ExitBootMS < last-slack {
			t.Errorf("it ran from %d to %d, said is %d to %d", first, last, st.StartBootMS, st.ExitBootMS)
		}
		if start := segs[0].StartMS - 1_000_000_000; start != st.StartBootMS {
			t.Errorf("proved from %d, said %d", start, st.StartBootMS)
		}
		if end := segs[len(segs)-1].EndMS - 1_000_000_000; end < st.ExitBootMS {
			t.Errorf("proved to %d, said %d", end, st.ExitBootMS)
		}
	})
}
