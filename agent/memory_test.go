package agent_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/musterhq/muster/agent/machine/hostmem"
	"github.com/musterhq/muster/internal/agentapi"
)

// A lease that pins far more of the host's memory than it was rented with is ended, as its own fault, when the host
// runs short of memory, and both sides get the reason. A neighbour that holds memory within its limit goes on. The
// containers, their processes and their mappings are real; a file stands in for NVIDIA's control device, and the test
// sets the amount of free memory.
func TestALeaseThatPinsTheHostsMemoryIsEnded(t *testing.T) {
	t.Parallel()
	const standIn = "/nvidiactl"
	h := newHost(t)
	h.stop()
	meminfo := filepath.Join(t.TempDir(), "meminfo")
	available := func(kb string) {
		t.Helper()
		next := meminfo + ".new"
		text := "MemTotal: 33554432 kB\nMemAvailable: " + kb + " kB\n"
		if err := os.WriteFile(next, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(next, meminfo); err != nil {
			t.Fatal(err)
		}
	}
	available("30000000")
	h.memory = hostmem.Reader{Meminfo: meminfo, StandIn: standIn}
	h.start()

	greedy, modest := h.spec("/job", "pin", standIn, "4294967296"), h.spec("/job", "pin", standIn, "104857600")
	modest.GPUs, modest.GraceS = []string{"GPU-1"}, 1
	h.want(greedy, modest)
	h.await(greedy.LeaseRef, "ready", ready)
	h.await(modest.LeaseRef, "ready", ready)
	greedy.Go, modest.Go = true, true
	h.want(greedy, modest)
	h.await(greedy.LeaseRef, "running", running)
	h.await(modest.LeaseRef, "running", running)
	available("100000")

	st := h.await(greedy.LeaseRef, "ended", done)
	if *st.ExitCode != 137 || st.Reason != agentapi.ReasonExited || !strings.Contains(st.Detail, "4.0 GiB of pinned") {
		t.Errorf("%s", replies(st))
	}
	poll(t, "the operator's note", func() bool {
		p, ok := h.problem("memory_overdrawn")
		return ok && strings.Contains(p.Evidence, greedy.Lease) && strings.Contains(p.Evidence, "4.0 GiB of pinned")
	})
	// Memory stays short, and no other lease exceeds its limit: the operator sees that, too.
	poll(t, "the note that no lease is to blame", func() bool {
		p, ok := h.problem("memory_short")
		return ok && strings.Contains(p.Evidence, "97 MiB were available")
	})
	h.await(modest.LeaseRef, "still running", running)
	h.want()
	h.await(greedy.LeaseRef, "gone", gone)
	h.await(modest.LeaseRef, "gone", gone)
}
