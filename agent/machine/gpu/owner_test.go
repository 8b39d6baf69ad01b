package gpu

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/musterhq/muster/agent/machine/gpu/fakeprofile"
	"github.com/musterhq/muster/agent/machine/gpu/wire"
	"github.com/musterhq/muster/internal/agentapi"
)

// process starts one that lives as long as the test, and makes it known in a /proc of the test's own.
func (h *host) process(t *testing.T, proc, name, cgroup string) (pid int, end func()) {
	t.Helper()
	cmd := exec.Command("sleep", "3600")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	end = sync.OnceFunc(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	t.Cleanup(end)
	putProcess(t, proc, cmd.Process.Pid, name, cgroup)
	return cmd.Process.Pid, end
}

func putProcess(t *testing.T, proc string, pid int, name, cgroup string) {
	t.Helper()
	dir := filepath.Join(proc, strconv.Itoa(pid))
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for file, text := range map[string]string{"comm": name, "cgroup": cgroup} {
		if err := os.WriteFile(filepath.Join(dir, file), []byte(text+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

const (
	session   = "0::/user.slice/user-1000.slice/session-2.scope"
	container = "0::/system.slice/docker-3f2a9c1b04de3f2a9c1b04de3f2a9c1b04de3f2a9c1b04de3f2a9c1b04de3f2a.scope"
)

func inUseOf(t *testing.T, m *Monitor, uuid string) string {
	t.Helper()
	for _, g := range inventory(t, m).GPUs {
		if g.UUID == uuid {
			return g.InUse
		}
	}
	t.Fatalf("no %s", uuid)
	return ""
}

// A desktop that holds more than it may has its GPU to itself until it ends; nothing is done to its processes. What a
// compositor needs is let pass, and a GPU that has a lease is not looked at.
func TestAnOwnersDesktopHasItsGPU(t *testing.T) {
	t.Parallel()
	h, proc := newHost(t, rtx4090, 3), t.TempDir()
	xorg, end := h.process(t, proc, "Xorg", session)
	firefox, _ := h.process(t, proc, "Isolated Web, Co", session)
	shell, _ := h.process(t, proc, "gnome-shell", session)
	job, _ := h.process(t, proc, "python3", container)
	set := func(first ...fakeprofile.Process) {
		t.Helper()
		if err := fakeprofile.SetProcesses(h.path, map[string][]fakeprofile.Process{
			h.uuid(0): first,
			h.uuid(1): {{PID: shell, MemMB: 200, Graphics: true}},
			h.uuid(2): {{PID: job, MemMB: 20_000}},
		}); err != nil {
			t.Fatal(err)
		}
	}
	set(fakeprofile.Process{PID: xorg, MemMB: 352, Graphics: true}, fakeprofile.Process{PID: firefox, MemMB: 60})
	m := h.start(t, func(c *Config) { c.ProcFS, c.timing.calm = proc, time.Nanosecond })
	if got := inUseOf(t, m, h.uuid(0)); got != "" {
		t.Errorf("judged before it is known what is leased: %s", got)
	}
	m.Owners.LeasedBy(func() map[string]bool { return map[string]bool{h.uuid(2): true} })
	inv := inventory(t, m)
	if got := inv.GPUs[0].InUse; got != "Xorg, Isolated Web Co, 412 MiB" {
		t.Errorf("the desktop: %q", got)
	}
	if inv.GPUs[1].InUse != "" || inv.GPUs[2].InUse != "" || inv.GPUs[0].Health != "healthy" {
		t.Errorf("%+v", inv.GPUs)
	}
	if len(inv.Problems) != 1 || inv.Problems[0].Code != agentapi.ProblemInUse || inv.Problems[0].Severity != "warn" ||
		!strings.Contains(inv.Problems[0].Cause, "GPU 0 is in use on the host itself (Xorg, Isolated Web Co, 412 MiB)") {
		t.Errorf("%+v", inv.Problems)
	}
	if used := m.Owners.InUse(t.Context(), h.uuid(0), h.uuid(1)); len(used) != 1 || used[h.uuid(0)] == "" {
		t.Errorf("asked again: %v", used)
	}
	select {
	case <-m.Diagnosis.Changed():
	case <-time.After(time.Minute):
		t.Error("no change was signalled")
	}
	end() // the owner's own doing
	set(fakeprofile.Process{PID: firefox, MemMB: 60})
	eventually(t, "free", func() (any, bool) { s := inUseOf(t, m, h.uuid(0)); return s, s == "" })
}

// What counts as in use, by what the driver says.
func TestWhatCountsAsInUse(t *testing.T) {
	t.Parallel()
	proc := t.TempDir()
	putProcess(t, proc, 10, "Xorg", session)
	putProcess(t, proc, 11, "steam", session)
	putProcess(t, proc, 12, "nv-hostengine", "0::/system.slice/nvidia-dcgm.service")
	putProcess(t, proc, 13, "dcgm-exporter", container)
	putProcess(t, proc, 14, "python3", container)
	const mib = 1 << 20
	use := func(mem int64, processes ...wire.Process) wire.Use {
		return wire.Use{MemUsed: mem * mib, Processes: processes}
	}
	p := func(pid int, mem int64) wire.Process { return wire.Process{PID: pid, MemUsed: mem * mib} }
	for _, test := range []struct {
		name    string
		allowed int64
		use     wire.Use
		want    string
	}{
		{"no process", 0, use(1), ""},
		{"no process, and the driver counts what it reserves", 0, use(700), ""},
		{"a compositor", 0, use(257, p(10, 256)), ""},
		{"a desktop", 0, use(413, p(10, 412)), "Xorg, 412 MiB"},
		{"a desktop that may hold more", 1024 * mib, use(413, p(10, 412)), ""},
		{"a compositor where none may be", -1, use(5, p(10, 4)), "Xorg, 4 MiB"},
		{"a process of unknown memory", 0, use(9000, p(11, 0)), "steam, 9000 MiB"},
		{"the driver's monitoring, on the host and in a container", 0, use(40, p(12, 10), p(13, 12)), ""},
		{"its monitoring, of unknown memory", 0, use(12, p(12, 0)), ""},
		{"another's container", 0, use(20_500, p(14, 20_000), p(12, 10)),
			"python3 in container 3f2a9c1b04de, nv-hostengine, 20010 MiB"},
		{"many", 0, use(2000, p(10, 500), p(11, 600), p(14, 300), p(12, 100), p(99, 200)),
			"steam, Xorg, python3 in container 3f2a9c1b04de, 2 more, 1700 MiB"},
		{"one that is gone by now", 0, use(600, p(4711, 600)), "process 4711, 600 MiB"},
		{"what the driver does not name", 0, use(5000), "something the driver does not name, 5000 MiB"},
	} {
		ow := &Owners{reg: &registry{cfg: Config{ProcFS: proc, OwnerMemory: test.allowed}}}
		if err := ow.reg.cfg.defaults(); err != nil {
			t.Fatal(err)
		}
		if got := ow.ownersUse(test.use); got != test.want {
			t.Errorf("%s: %q, want %q", test.name, got, test.want)
		}
	}
}

// A GPU is free when its owner has let go of it for half a minute, and another amount of memory is no news.
func TestAGPUIsFreeAfterACalm(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_000_000, 0)
	ow := &Owners{
		reg:      &registry{cfg: Config{Now: func() time.Time { return now }}},
		unleased: map[string]owned{},
	}
	if err := ow.reg.cfg.defaults(); err != nil {
		t.Fatal(err)
	}
	ow.reg.log = ow.reg.cfg.Logger
	for i, step := range []struct {
		after time.Duration
		says  string
		news  bool
		held  bool
	}{
		{0, "", false, false},
		{0, "Xorg, 412 MiB", true, true},
		{10, "Xorg, 500 MiB", false, true},
		{10, "Xorg, steam, 900 MiB", true, true},
		{10, "", false, true},
		{20, "", false, true},
		{5, "steam, 900 MiB", true, true}, // it was only restarted
		{10, "", false, true},
		{29, "", false, true},
		{1, "", true, false},
		{10, "", false, false},
	} {
		now = now.Add(step.after * time.Second)
		news := ow.noteOwner("GPU-1", step.says)
		if _, held := ow.unleased["GPU-1"]; news != step.news || held != step.held {
			t.Errorf("step %d: news %v, held %v, want %+v", i, news, held, step)
		}
	}
}

// What the host itself starts while a GPU is leased does not keep the lease's end from coming: an owner's session, or a
// service such as a login screen. What runs in any container does.
func TestTheOwnersSessionHoldsUpNoEnd(t *testing.T) {
	t.Parallel()
	h, proc := newHost(t, rtx4090, 1), t.TempDir()
	m := h.start(t, func(c *Config) { c.ProcFS = proc })
	if err := m.Leases.NoteBefore(t.Context(), h.uuid(0)); err != nil {
		t.Fatal(err)
	}
	game, _ := h.process(t, proc, "steam", session)
	rootless, _ := h.process(t, proc, "python3",
		"0::/user.slice/user-1000.slice/user@1000.service/user.slice/"+
			"docker-3f2a9c1b04de3f2a9c1b04de3f2a9c1b04de3f2a9c1b04de3f2a9c1b04de3f2a.scope")
	service, _ := h.process(t, proc, "ollama", "0::/system.slice/ollama.service")
	for _, test := range []struct {
		pid   int
		clean bool
	}{{game, true}, {rootless, false}, {service, true}} {
		if err := fakeprofile.SetProcesses(h.path, map[string][]fakeprofile.Process{h.uuid(0): {{
			PID:   test.pid,
			MemMB: 9000,
		}}}); err != nil {
			t.Fatal(err)
		}
		if left, _ := m.Leases.left(t.Context(), []string{h.uuid(0)}); (len(left) == 0) != test.clean {
			t.Errorf("process %d: %v", test.pid, left)
		}
	}
}
