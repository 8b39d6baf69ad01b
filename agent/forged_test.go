package agent_test

import (
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/musterhq/muster/agent/workload/guest"
	"github.com/musterhq/muster/internal/agentapi"
)

// A program that forges heartbeats of its node does not make the node look healthy: its overlay hangs, and the host
// reports that while the program goes on. Nothing that a tenant can send counts as evidence.
func TestAForgedHeartbeatCountsForNothing(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	h.stop()
	h.patience = time.Second
	h.start()
	spec := h.launch(h.spec("/job", "beat", guest.NodeDir, strings.Split(h.image, "/")[0]))
	h.await(spec.LeaseRef, "running", running)
	h.set(func() { delete(h.doubted, spec.LeaseRef) })
	out, err := exec.Command("pgrep", "-f", "overlay "+h.folder(spec.LeaseRef)).Output()
	pid, _ := strconv.Atoi(strings.TrimSpace(string(out)))
	if err != nil || pid == 0 {
		t.Fatalf("the overlay's process: %q, %v", out, err)
	}
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	poll(t, "a report that the node is not well", func() bool {
		var doubted bool
		h.set(func() { doubted = h.doubted[spec.LeaseRef] })
		return doubted
	})
	h.await(spec.LeaseRef, "well again, with another overlay", func(st agentapi.LeaseStatus) bool { return st.Good })
	h.want()
	h.await(spec.LeaseRef, "gone", gone)
	if text := h.kept(spec.LeaseRef); !strings.Contains(text, "cannot connect to the hold socket true") ||
		!strings.Contains(text, "cannot write the node's files true") {
		t.Errorf("log: %s", text)
	}
}
