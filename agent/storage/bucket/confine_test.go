package bucket

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/internal/agentapi"
)

// Each process of a mount is confined before it knows what to mount: the first one, one that follows a kill, and one
// that another agent has started. A process that cannot be confined mounts nothing, and ends.
func TestEveryProcessIsConfined(t *testing.T) {
	w := newWorld(t)
	w.w.Mount.Mode = agentapi.MountRO
	var mu sync.Mutex
	confined := map[int]int{}
	early := true
	var fails error
	cfg := w.config()
	cfg.Confine = func(ref agentapi.LeaseRef, pid int) error {
		mu.Lock()
		defer mu.Unlock()
		if ref != w.w.Ref {
			return fmt.Errorf("confined for %s", ref)
		}
		confined[pid]++
		if _, err := os.Stat(filepath.Join(filepath.Dir(w.point()), "socket")); err == nil && confined[pid] == 1 {
			early = false // it has its configuration: it would answer at the socket
		}
		return fails
	}
	times := func(pid int) int {
		mu.Lock()
		defer mu.Unlock()
		return confined[pid]
	}
	w.m = New(cfg)
	w.mounted()
	first := w.pid()
	if n := times(first); n != 1 {
		t.Errorf("the first process was confined %d times", n)
	}
	mu.Lock() // the next process is confined while this one's socket is still there
	if !early {
		t.Error("the first process had its configuration before it was confined")
	}
	mu.Unlock()
	w.must(unix.Kill(first, unix.SIGKILL))
	w.await("started again", func(s State) bool { return s.Ready && s.Starts == 2 })
	second := w.pid()
	if n := times(second); n != 1 || second == first {
		t.Errorf("the second process (%d after %d) was confined %d times", second, first, n)
	}
	w.m.Close()
	w.m = New(cfg) // of the next agent
	w.mounted()
	if n := times(second); n != 2 || w.pid() != second {
		t.Errorf("the adopted process was confined %d times", n)
	}
	w.m.Close()
	mu.Lock()
	fails = errors.New("no limits")
	mu.Unlock()
	w.m = New(cfg)
	w.m.Want(w.w)
	s := w.await("not confined", func(s State) bool { return s.ByHost && s.Problem != "" })
	if s.Ready {
		t.Errorf("mounted without limits: %+v", s)
	}
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		if err := unix.Kill(second, 0); err != nil || zombie(second) {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("a process without limits goes on")
		}
	}
	list, err := os.ReadFile("/proc/self/mounts")
	w.must(err)
	if strings.Contains(string(list), w.source()) && w.state().Ready {
		t.Error("something is mounted without limits")
	}
}
