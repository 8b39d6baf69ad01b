package snapd

import (
	"context"
	"log/slog"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/musterhq/muster/internal/agentapi"
)

// TestMain is also the process for volumes, one that ends at once, and one that takes more memory than it may.
func TestMain(m *testing.M) {
	if len(os.Args) > 2 && os.Args[1] == "snapd" {
		os.Exit(Main(os.Args[2:]))
	}
	if len(os.Args) > 2 && os.Args[1] == "greedy" {
		if err := limit(128 << 20); err != nil {
			os.Exit(3)
		}
		for range 4096 { // not by the Go runtime, which fails in another way under the race detector
			_, err := syscall.Mmap(-1, 0, 1<<20, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
			if err != nil {
				_, _ = os.Stderr.WriteString("fatal error: runtime: " + err.Error() + "\n")
				os.Exit(2)
			}
		}
		os.Exit(0) // nothing has limited it
	}
	os.Exit(m.Run())
}

// clientOf runs the agent's side of processes that a command starts; "greedy", for lease "greedy" alone.
func clientOf(t *testing.T) *Client {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c := NewClient(Config{Dir: t.TempDir(), Log: slog.New(slog.DiscardHandler),
		Command: []string{"/bin/sh", "-c",
			`case "$1" in */greedy-*) exec "$0" greedy "$1";; *) exec "$0" snapd "$1";; esac`, self},
		Server: func(context.Context, agentapi.VolumeRequest) (r agentapi.VolumeReply, err error) {
			return r, context.DeadlineExceeded
		}})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { c.Run(ctx); close(done) }()
	t.Cleanup(func() { cancel(); <-done })
	return c
}

func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(2 * time.Minute); !ok(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within two minutes: %s", what)
		}
	}
}

// pid returns the process of a run, once it answers.
func (c *Client) pid(ref agentapi.LeaseRef) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	if p := c.runs[ref]; p != nil && p.cmd != nil && p.known > 0 {
		return p.cmd.Process.Pid
	}
	return 0
}

// What a tenant stored may end the process that reads it, by a fault or by its size. It is the tenant's own process:
// the others go on, and the reason is named.
func TestProcess_ItsEndCostsItsLeaseOnly(t *testing.T) {
	t.Parallel()
	c := clientOf(t)
	a, b, greedy := agentapi.LeaseRef{Lease: "ls_a", Epoch: 1}, agentapi.LeaseRef{Lease: "ls_b", Epoch: 2},
		agentapi.LeaseRef{Lease: "greedy", Epoch: 1}
	for _, ref := range []agentapi.LeaseRef{a, b, greedy} {
		c.Want(Attached{Ref: ref, Mount: agentapi.Mount{Volume: "vol_x", Mode: agentapi.MountRO}, Root: t.TempDir(),
			Moved: t.TempDir() + "/moved"})
	}
	until(t, "two processes", func() bool { return c.pid(a) > 0 && c.pid(b) > 0 })
	first, other := c.pid(a), c.pid(b)
	if err := syscall.Kill(first, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	until(t, "another process for the first run", func() bool { return c.pid(a) > 0 && c.pid(a) != first })
	until(t, "the reason of the run that needs too much", func() bool {
		return strings.Contains(c.State(greedy, "vol_x").Refused, "needs more memory")
	})
	if st := c.State(greedy, "vol_x"); !st.Unreadable || !st.Closed {
		t.Errorf("%+v", st)
	}
	if got := c.pid(b); got != other || c.State(b, "vol_x").Refused != "" {
		t.Errorf("the other run's process was %d, and is %d: %+v", other, got, c.State(b, "vol_x"))
	}
	for _, ref := range []agentapi.LeaseRef{a, b, greedy} {
		if err := c.Detach(t.Context(), ref); err != nil {
			t.Fatal(err)
		}
	}
	if err := syscall.Kill(other, 0); err == nil {
		t.Error("a process is left after its run was detached")
	}
	if left, err := os.ReadDir(c.cfg.Dir); err != nil || len(left) != 1 {
		t.Errorf("left: %v, %v", left, err)
	}
}
