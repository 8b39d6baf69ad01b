package devstack

import (
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"
)

func TestProcessIsFoundAgain(t *testing.T) {
	t.Parallel()
	p := process{name: "sleeper", dir: t.TempDir(), cmd: func() *exec.Cmd { return exec.Command("sleep", "60") }}
	if started, err := p.start(); err != nil || !started {
		t.Fatal(started, err)
	}
	pid := p.pid()
	if pid == 0 {
		t.Fatal("not found after the start")
	}
	again := process{name: p.name, dir: p.dir, cmd: p.cmd} // as a new run of us would
	if started, err := again.start(); err != nil || started || again.pid() != pid {
		t.Fatalf("started a second one: %v %v %d", started, err, again.pid())
	}
	if err := again.stop(t.Context(), 5*time.Second); err != nil {
		t.Fatal(err)
	}
	if syscall.Kill(pid, 0) == nil && startTime(pid) != "" {
		t.Error("it still runs")
	}
}

func TestProcessIgnoresAReusedPID(t *testing.T) {
	t.Parallel()
	p := process{name: "other", dir: t.TempDir()}
	if err := os.WriteFile(p.path(), []byte(`{"pid":1,"start":"not its start"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if p.pid() != 0 {
		t.Error("another process counts as ours")
	}
}

func TestStateSurvives(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	a, err := loadState(dir)
	if err != nil {
		t.Fatal(err)
	}
	a.Hosts = append(a.Hosts, hostState{Name: "local-1", ID: "host_x"})
	if err := a.save(); err != nil {
		t.Fatal(err)
	}
	b, err := loadState(dir)
	if err != nil || b.Secret != a.Secret || b.Ports != a.Ports || len(b.Hosts) != 1 {
		t.Fatalf("%+v %v", b, err)
	}
	l, err := lock(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if _, err := lock(dir); err == nil {
		t.Error("two at once")
	}
}

// A folder of an earlier version gets the ports that version did not keep, once, and keeps those it had.
func TestEarlierStateGetsMissingPorts(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	a, err := loadState(dir)
	if err != nil {
		t.Fatal(err)
	}
	if a.Ports.Relay == 0 {
		t.Fatal("no port for the relay")
	}
	before := a.Ports
	a.Ports.Relay = 0
	if err := a.save(); err != nil {
		t.Fatal(err)
	}
	b, err := loadState(dir)
	if err != nil || b.Ports.Relay == 0 {
		t.Fatalf("%+v %v", b, err)
	}
	before.Relay = b.Ports.Relay
	if b.Ports != before {
		t.Errorf("%+v became %+v", before, b.Ports)
	}
	if c, err := loadState(dir); err != nil || c.Ports != b.Ports {
		t.Errorf("%+v the time after: %v", c, err)
	}
}
