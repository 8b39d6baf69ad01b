package barrier

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/musterhq/muster/agent/leasefiles"
	"github.com/musterhq/muster/agent/machine/gpucheck"
	"github.com/musterhq/muster/agent/workload/guest"
	"github.com/musterhq/muster/internal/agentapi"
)

// The tests run real inits: this executable, as the injected binary is run. It is not PID 1 here, which only changes
// the parent that orphans get.
func TestMain(m *testing.M) {
	if dir := os.Getenv("BARRIER_TEST_NODE"); dir != "" {
		epoch, _ := strconv.Atoi(os.Getenv("BARRIER_TEST_EPOCH"))
		var env []string
		for _, kv := range os.Environ() {
			if !strings.HasPrefix(kv, "BARRIER_TEST_") {
				env = append(env, kv)
			}
		}
		ref := agentapi.LeaseRef{Lease: "lease_x", Epoch: epoch}
		devices := strings.Fields(os.Getenv("BARRIER_TEST_DEVICES"))
		i := Init{Ref: ref, NodeDir: dir, Devices: devices, Command: os.Args[1:], Env: env, Stderr: os.Stderr}
		if script := os.Getenv("BARRIER_TEST_CHECK"); script != "" {
			i.GPUs = &gpucheck.Check{Command: []string{"/bin/sh", "-c", script}}
		}
		os.Exit(i.Run())
	}
	os.Exit(m.Run())
}

// node is a lease's files with its guest running.
type node struct {
	ref    agentapi.LeaseRef
	files  leasefiles.Layout
	client *guest.Client
	stop   func()
}

func newNode(t *testing.T) *node {
	t.Helper()
	n := &node{ref: agentapi.LeaseRef{Lease: "lease_x", Epoch: 2}, files: leasefiles.At(t.TempDir())}
	spec := agentapi.LeaseSpec{LeaseRef: n.ref, Nodes: 1, Network: agentapi.Network{Address: "10.77.0.1"}}
	if err := n.files.Write(spec, []netip.Addr{netip.MustParseAddr("9.9.9.9")}); err != nil {
		t.Fatal(err)
	}
	n.client = guest.Dial(n.files.HoldSocket)
	n.hold(t)
	return n
}

// noState is never a workload's: waiting for another state than this one returns at once.
const noState guest.State = "none"

func (n *node) hold(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	h := guest.Holder{Ref: n.ref, HoldDir: n.files.Guest, NodeDir: n.files.Node}
	go func() { done <- h.Run(ctx) }()
	n.stop = sync.OnceFunc(func() { cancel(); <-done })
	t.Cleanup(n.stop)
	for {
		if w, err := n.client.Next(t.Context(), noState); err == nil {
			if w.LeaseRef != n.ref && w.State != "" {
				t.Fatalf("the guest serves %s", w.LeaseRef)
			}
			return
		}
		select {
		case err := <-done:
			t.Fatal("the guest ended:", err)
		case <-time.After(time.Millisecond):
		}
	}
}

// start runs an init as the runtime starts a workload.
func (n *node) start(t *testing.T, command ...string) (*exec.Cmd, *bytes.Buffer) {
	t.Helper()
	cmd := exec.Command("/proc/self/exe", command...)
	cmd.Env = append(os.Environ(), "BARRIER_TEST_NODE="+n.files.Node, "BARRIER_TEST_EPOCH=2")
	out := &bytes.Buffer{}
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill() })
	return cmd, out
}

// next waits for another state than after.
func (n *node) next(t *testing.T, after guest.State) guest.Workload {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	w, err := n.client.Next(ctx, after)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func (n *node) release(t *testing.T, epoch int) {
	t.Helper()
	if err := n.files.OpenBarrier(agentapi.LeaseRef{Lease: n.ref.Lease, Epoch: epoch}); err != nil {
		t.Fatal(err)
	}
}

func code(t *testing.T, cmd *exec.Cmd) int {
	t.Helper()
	err := cmd.Wait()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode()
}

func TestRunsAfterRelease(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	marker := filepath.Join(t.TempDir(), "ran")
	cmd, out := n.start(t, "sh", "-c", `touch "$1"; echo "args $*"; exit 7`, "name", marker)
	if w := n.next(t, guest.StateNone); w.State != guest.StateAtBarrier || w.LeaseRef != n.ref || w.AtMS == 0 {
		t.Fatalf("before the release: %+v", w)
	}
	if _, err := os.Stat(marker); err == nil {
		t.Fatal("the command ran before its release")
	}
	n.release(t, 2)
	if w := n.next(t, guest.StateAtBarrier); w.State != guest.StateStarted {
		t.Fatalf("after the release: %+v", w)
	}
	if c := code(t, cmd); c != 7 || out.String() != "args "+marker+"\n" {
		t.Errorf("code %d, output %q", c, out)
	}
	// The state outlives the guest, and messages of the workload no longer change it.
	n.stop()
	if w := guest.KeptWorkload(n.files.Guest, n.ref); w.State != guest.StateStarted {
		t.Errorf("kept: %+v", w)
	}
	if w := guest.KeptWorkload(n.files.Guest, agentapi.LeaseRef{Lease: "lease_x", Epoch: 3}); w.State != guest.StateNone {
		t.Errorf("kept for another epoch: %+v", w)
	}
}

// A command that cannot run is reported before the barrier: by state, by exit code and in the log.
func TestRefusesBeforeTheBarrier(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	put := func(name, text string, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	foreign, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	foreign[18], foreign[19] = 0xf3, 0 // e_machine: RISC-V
	for name, c := range map[string]struct {
		command string
		code    int
		want    string
	}{
		"not on PATH":    {"no-such-command-anywhere", 127, "looked in /"},
		"no such file":   {"/nonexistent/train.sh", 127, "is not in the image"},
		"a folder":       {"/etc", 126, "not a file"},
		"not executable": {put("plain", "x", 0o644), 126, "permission denied"},
		"no interpreter": {put("script", "#!/nonexistent/python3 -u\n", 0o755), 127,
			"needs the interpreter /nonexistent/python3"},
		"no interpreter of the interpreter": {put("outer", "#!"+put("inner", "#!/nonexistent/sh\n", 0o755)+"\n", 0o755), 127,
			"needs the interpreter /nonexistent/sh"},
		"Windows' lines": {put("crlf", "#!/bin/sh\r\necho hello\r\n", 0o755), 126,
			"its lines end in CRLF, as on Windows"},
		"Windows' lines after an option": {put("crlf-e", "#!/bin/sh -e\r\n", 0o755), 126, "CRLF"},
		"built for other CPU":            {put("foreign", string(foreign), 0o755), 126, "built for EM_RISCV"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t)
			cmd, out := n.start(t, c.command)
			w := n.next(t, guest.StateNone)
			if w.State != guest.StateRefused || w.Reason != agentapi.ReasonCommandNotFound ||
				!strings.Contains(w.Detail, c.want) {
				t.Errorf("%+v, want %q", w, c.want)
			}
			if got := code(t, cmd); got != c.code || !strings.Contains(out.String(), c.want) {
				t.Errorf("code %d, want %d; log %q", got, c.code, out)
			}
		})
	}
}

// A node whose GPUs are not in its container ends before the barrier, so before anybody pays for them.
func TestRefusesWithoutItsDevices(t *testing.T) {
	file := filepath.Join(t.TempDir(), "nvidia0")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(t.TempDir(), "nvidia1")
	if err := os.Symlink(os.DevNull, link); err != nil {
		t.Fatal(err)
	}
	for name, path := range map[string]string{
		"absent": "/dev/nvidia-that-is-not-here", "a file of the image's": file, "a link of the image's": link,
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("BARRIER_TEST_DEVICES", os.DevNull+" "+path)
			n := newNode(t)
			cmd, _ := n.start(t, "true")
			w := n.next(t, guest.StateNone)
			if w.State != guest.StateRefused || w.Reason != agentapi.ReasonGPUFailed || !strings.Contains(w.Detail, path) {
				t.Errorf("%+v", w)
			}
			if got := code(t, cmd); got != guest.ExitBroken {
				t.Errorf("code %d", got)
			}
		})
	}
	t.Run("all there", func(t *testing.T) {
		t.Setenv("BARRIER_TEST_DEVICES", os.DevNull+" /dev/zero")
		n := newNode(t)
		n.start(t, "true")
		if w := n.next(t, guest.StateNone); w.State != guest.StateAtBarrier {
			t.Errorf("%+v", w)
		}
	})
}

// GPUs that do not compute end a node before the barrier. A check that could not run does so too, but accuses no GPU;
// one that was killed for lack of the renter's memory proves nothing.
func TestRefusesGPUsThatDoNotCompute(t *testing.T) {
	const failure = `echo '{"result":{"failure":{"kind":"cuda","gpus":["GPU-a"],"step":"context","call":"cuCtxCreate",` +
		`"code":802,"text":"CUDA_ERROR_SYSTEM_NOT_READY"}}}'`
	for name, c := range map[string]struct{ script, reason, text string }{
		"failed":      {failure, agentapi.ReasonGPUFailed, "GPU-a at context: cuCtxCreate: CUDA_ERROR_SYSTEM_NOT_READY"},
		"crashed":     {"exit 3", agentapi.ReasonGPUFailed, "ended early"},
		"all is well": {`echo '{"result":{}}'`, "", ""},
		"killed":      {"kill -9 $$", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("BARRIER_TEST_CHECK", c.script)
			n := newNode(t)
			cmd, _ := n.start(t, "true")
			w := n.next(t, guest.StateNone)
			if c.reason == "" {
				if w.State != guest.StateAtBarrier {
					t.Errorf("%+v", w)
				}
				return
			}
			if w.State != guest.StateRefused || w.Reason != c.reason || !strings.Contains(w.Detail, c.text) ||
				w.GPUCheck == nil {
				t.Errorf("%+v", w)
			}
			if got := code(t, cmd); got != guest.ExitBroken {
				t.Errorf("code %d", got)
			}
			if kept := guest.KeptWorkload(n.files.Guest, n.ref); kept.GPUCheck == nil {
				t.Errorf("kept: %+v", kept)
			}
		})
	}
}

// An error that only exec finds is reported, too, and a script without a #! line is run by the shell, as with execvp.
func TestExecHasTheLastWord(t *testing.T) {
	t.Parallel()
	script := filepath.Join(t.TempDir(), "script")
	if err := os.WriteFile(script, []byte("echo by the shell $1\nexit 3\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	n := newNode(t)
	cmd, out := n.start(t, script, "x")
	n.next(t, guest.StateNone)
	n.release(t, 2)
	if c := code(t, cmd); c != 3 || out.String() != "by the shell x\n" {
		t.Errorf("code %d, %q", c, out)
	}

	n = newNode(t)
	vanishes := filepath.Join(t.TempDir(), "vanishes")
	if err := os.WriteFile(vanishes, []byte("#!/bin/sh\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	cmd, _ = n.start(t, vanishes)
	n.next(t, guest.StateNone)
	os.Remove(vanishes)
	n.release(t, 2)
	if w := n.next(t, guest.StateAtBarrier); w.State != guest.StateRefused {
		t.Errorf("a command that vanished: %+v", w)
	}
	if c := code(t, cmd); c != guest.ExitNotRunnable {
		t.Errorf("code %d", c)
	}
}

// Only this very epoch's release opens the barrier; a former epoch's file is cleared away when files are written.
func TestOtherEpochsDoNotOpen(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.release(t, 1)
	cmd, out := n.start(t, "true")
	n.next(t, guest.StateNone)
	if c := code(t, cmd); c != guest.ExitBroken || !strings.Contains(out.String(),
		"lease_x/e1 was released, this is lease_x/e2") {
		t.Errorf("code %d, %q", c, out)
	}
	spec := agentapi.LeaseSpec{LeaseRef: n.ref, Nodes: 1, Network: agentapi.Network{Address: "10.77.0.1"}}
	if err := n.files.Write(spec, nil); err != nil {
		t.Fatal(err)
	}
	if _, ok, err := leasefiles.BarrierOpen(n.files.Node); ok || err != nil {
		t.Errorf("the former epoch's release is still there: %v, %v", ok, err)
	}
	n.release(t, 2)
	if err := n.files.Write(spec, nil); err != nil {
		t.Fatal(err)
	}
	if _, ok, _ := leasefiles.BarrierOpen(n.files.Node); !ok {
		t.Error("writing the same epoch's files again closed its barrier")
	}
}

// An init whose guest dies ends, and so does one that receives SIGTERM.
func TestLeavesTheBarrier(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	cmd, _ := n.start(t, "true")
	n.next(t, guest.StateNone)
	cmd.Process.Signal(syscall.SIGTERM)
	if c := code(t, cmd); c != 143 {
		t.Errorf("TERM at the barrier: code %d", c)
	}
	// No guest at all.
	n.stop()
	cmd, out := n.start(t, "true")
	if c := code(t, cmd); c != guest.ExitBroken || !strings.Contains(out.String(), "the guest does not answer") {
		t.Errorf("without a guest: code %d, %q", c, out)
	}
}

// A command without a handler is ended by SIGTERM, although PID 1 would ignore it; its exit code names the signal. A
// command that handles SIGTERM chooses its own code.
func TestSignalsAndCodes(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		script string
		code   int
	}{{"touch $0; exec sleep 60", 143}, {`trap "exit 5" TERM; touch $0; while :; do sleep 0.02; done`, 5}} {
		n := newNode(t)
		up := filepath.Join(t.TempDir(), "up")
		cmd, _ := n.start(t, "sh", "-c", c.script, up)
		n.next(t, guest.StateNone)
		n.release(t, 2)
		awaitFile(t, up)
		cmd.Process.Signal(syscall.SIGTERM)
		if got := code(t, cmd); got != c.code {
			t.Errorf("%s: code %d, want %d", c.script, got, c.code)
		}
	}
}

// Scripts that execute an init in their place are inits, too.
func TestScriptsThatBecomeInits(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	put := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
		return path
	}
	last := put("last.sh", "#!/bin/sh\nset -e\nif true; then exec /init; fi\n")
	args := put("args.sh", "#!/bin/bash -e\necho up\nexec \"$@\"\n")
	for name, c := range map[string]struct {
		command []string
		want    bool
	}{
		"at its end":         {[]string{last}, true},
		"by a shell":         {[]string{"/bin/bash", last}, true},
		"after a test":       {[]string{put("if.sh", "#!/bin/sh\n[ $# -eq 0 ] && exec /init\nexec \"$@\"\n")}, true},
		"two lines":          {[]string{put("two.sh", "#!/bin/sh\n[ -z \"$1\" ] && exec \\\n /init || exec \"$@\"\n")}, true},
		"another user's":     {[]string{"/bin/sh", "-c", "exec gosu root env -i A=b /init"}, true},
		"tini":               {[]string{"/usr/bin/tini", "--", "/bin/true"}, false},
		"its arguments":      {[]string{args, "/sbin/init", "train"}, true},
		"others' arguments":  {[]string{args, "python3", "/init"}, false},
		"through another":    {[]string{put("outer.sh", "#!/bin/sh\nexec "+last+" \"$@\"\n")}, true},
		"a shell's text":     {[]string{"/bin/bash", "-lc", "echo a; exec /init"}, true},
		"a text's arguments": {[]string{"/bin/sh", "-c", `exec "$@"`, "sh", "/sbin/init"}, true},
		"a comment":          {[]string{put("comment.sh", "#!/bin/sh\n# exec /init\necho exec; /bin/true /init\n")}, false},
		"itself":             {[]string{put("loop.sh", "#!/bin/sh\nexec "+filepath.Join(dir, "loop.sh")+"\n")}, false},
		"a program":          {[]string{"/bin/true", last}, false},
		"a shell alone":      {[]string{"/bin/bash"}, false},
		"an interpreter's":   {[]string{put("p.py", "#!/usr/bin/python3\nexec('/init')\n")}, false},
		"behind env":         {[]string{"/bin/sh", "-c", "cd / && exec env A=b /init"}, true},
		"the shell form":     {[]string{"/bin/bash", "-c", "/init --port 80"}, true},
		"a text's last":      {[]string{"/bin/bash", "-c", "cd / && A=b '/init' ;"}, true},
		"a text's first":     {[]string{"/bin/bash", "-c", "/init; train"}, false},
		"a text's argument":  {[]string{"/bin/bash", "-c", "echo /init"}, false},
		"a script's last":    {[]string{put("fork.sh", "#!/bin/sh\n/init\n")}, false},
		"one of two":         {[]string{put("two.sh", "#!/bin/sh\n[ $X ] && exec /init || exec sh\nexec sh\n")}, true},
		"by the path":        {[]string{args, "last.sh"}, true},
		"options of exec":    {[]string{put("dash.sh", "#!/bin/sh\nexec -- \"${@}\"\n"), "/init"}, true},
	} {
		if got := isInit(c.command, c.command[0], []string{"PATH=" + dir}); got != c.want {
			t.Errorf("%s: %q: %t", name, c.command, got)
		}
	}
}

// A command that is an init itself takes the process over: same pid, no one above it.
func TestAnInitReplacesUs(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	init := filepath.Join(t.TempDir(), "init")
	if err := os.WriteFile(init, []byte("#!/bin/sh\necho $$\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	cmd, out := n.start(t, init)
	n.next(t, guest.StateNone)
	n.release(t, 2)
	if w := n.next(t, guest.StateAtBarrier); w.State != guest.StateStarted {
		t.Errorf("%+v", w)
	}
	if c := code(t, cmd); c != 0 || out.String() != fmt.Sprintln(cmd.Process.Pid) {
		t.Errorf("code %d; it ran as pid %s, the init was %d", c, out, cmd.Process.Pid)
	}
}

func awaitFile(t *testing.T, path string) {
	t.Helper()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(time.Minute)
	for {
		if _, err := os.Stat(path); err == nil {
			return
		}
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("%s did not appear", path)
		}
	}
}
