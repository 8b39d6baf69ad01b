package gpu

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// A probe that gets no processor time for longer than an answer may take is late, and no GPU is blamed for it.
func TestALateProbeIsNoHang(t *testing.T) {
	t.Parallel()
	h := newHost(t, h100, 2)
	m := h.start(t, func(c *Config) {
		c.timing.watch, c.timing.call, c.timing.late = time.Hour, 3*time.Second, 10*time.Minute
	})
	becomes(t, m, h.uuid(1), Healthy)
	m.reg.looking.Lock() // the look that has seen it asks for more, and those answers would be waited for too
	defer m.reg.looking.Unlock()
	m.driver.probe.mu.Lock()
	c := m.driver.probe.child
	m.driver.probe.mu.Unlock()
	if err := syscall.Kill(c.cmd.Process.Pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	eventually(t, "stopped", func() (any, bool) {
		states, ok := threadStates(t, c.cmd.Process.Pid)
		return states, ok
	})
	answered := make(chan error, 1)
	go func() {
		b, err := m.Telemetry.Sample(t.Context(), h.uuid(0), h.uuid(1))
		if err == nil && len(b.Samples) != 2 {
			t.Errorf("%d answer", len(b.Samples))
		}
		answered <- err
	}()
	eventually(t, "overdue and asked for a sign of life", func() (any, bool) { // two calls, and a ping for each
		c.mu.Lock()
		defer c.mu.Unlock()
		return len(c.waiting), len(c.waiting) == 4
	})
	if err := syscall.Kill(c.cmd.Process.Pid, syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if err := <-answered; err != nil {
		t.Error(err)
	}
	m.driver.probe.mu.Lock()
	defer m.driver.probe.mu.Unlock()
	if n := len(m.Diagnosis.Pending()); n != 0 || m.driver.probe.starts != 1 {
		t.Errorf("%d events, %d starts", n, m.driver.probe.starts)
	}
}

// threadStates returns the states of a process's threads, and whether a signal has stopped them all.
func threadStates(t *testing.T, pid int) (states string, stopped bool) {
	t.Helper()
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		_, after, _ := bytes.Cut(b, []byte(") ")) // behind the name
		states += string(after[:1])
	}
	return states, strings.Trim(states, "T") == "" && states != ""
}
