package container

import (
	"context"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// started runs a shell script as the leader of a session of its own, as the runtime starts an exec.
func started(t *testing.T, script string) leader {
	t.Helper()
	// Where the tests themselves run below nohup, processes would be born deaf to HUP: handling it here undoes that.
	hup := make(chan os.Signal, 1)
	signal.Notify(hup, syscall.SIGHUP)
	t.Cleanup(func() { signal.Stop(hup) })
	cmd := exec.Command("sh", "-c", script)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) })
	if _, err := stdout.Read(make([]byte, 6)); err != nil { // it says "ready" when it is
		t.Fatal(err)
	}
	go func() { _ = cmd.Wait() }()
	st, ok := readStat(cmd.Process.Pid)
	if !ok || st.session != cmd.Process.Pid {
		t.Fatalf("%+v %v", st, ok)
	}
	return leader{cmd.Process.Pid, st.start}
}

func (l leader) left() (out []string) {
	l.each(func(pid int) {
		b, _ := exec.Command("ps", "-o", "args=", "-p", strconv.Itoa(pid)).Output()
		out = append(out, strings.TrimSpace(string(b)))
	})
	return out
}

func TestHangupEndsASession(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct{ script, stays string }{
		"plain":             {"sleep 70001 & echo ready; sleep 70002", ""},
		"deaf to HUP, TERM": {`trap "" HUP TERM; echo ready; sleep 70003; sleep 70004`, ""},
		"stopped":           {"sleep 70005 & kill -STOP $!; echo ready; sleep 70006", ""},
		"meant to stay": {"nohup sleep 70007 >/dev/null 2>&1 </dev/null & until ps -o args= -p $! | grep -q ^sleep; " +
			"do :; done; echo ready; sleep 70008", "sleep 70007"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := started(t, tc.script)
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			l.hangup(ctx)
			if got := strings.Join(l.left(), ","); got != tc.stays || ctx.Err() != nil {
				t.Errorf("left: %q, want %q", got, tc.stays)
			}
		})
	}
}

// A pid that has been given to another process is not the leader.
func TestAnotherProcessIsNotTheLeader(t *testing.T) {
	t.Parallel()
	l := started(t, "echo ready; sleep 70009")
	old := leader{l.pid, l.start - 1}
	if old.alive() || !l.alive() {
		t.Error("a leader is known by its pid alone")
	}
	if err := old.signal("KILL"); err != nil || !l.alive() {
		t.Errorf("another process was killed: %v", err)
	}
	if found := findLeader(l.pid, "no-such-container"); found.pid != 0 {
		t.Error("a process outside the container was taken for one in it")
	}
}

func TestExecEnvKeepsDevicesOut(t *testing.T) {
	t.Parallel()
	got := execEnv([]string{"A=1", "NVIDIA_VISIBLE_DEVICES=all", "nvidia_gds=1", "=x", "plain", execMark + "=host_x",
		"LC_ALL=C"})
	if strings.Join(got, " ") != "A=1 LC_ALL=C" {
		t.Errorf("%q", got)
	}
}
