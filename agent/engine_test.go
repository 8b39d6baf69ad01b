package agent_test

import (
	"cmp"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/testing/testnet"
)

// dockerd is a Docker daemon that one test starts and stops. It has its own data directory, bridge and sockets, and no
// live restore.
type dockerd struct {
	t            *testing.T
	dir, bridge  string
	daemon       *exec.Cmd
	gone, cdGone chan struct{}
}

func startDockerd(t *testing.T) *dockerd {
	t.Helper()
	dir, err := os.MkdirTemp("", "muster-dockerd-")
	if err != nil {
		t.Fatal(err)
	}
	d := &dockerd{t: t, dir: dir, bridge: "msa" + strconv.Itoa(os.Getpid())}
	if out, err := exec.Command("ip", "link", "add", d.bridge, "type", "bridge").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	var containerd *exec.Cmd
	t.Cleanup(func() {
		end(d.daemon, d.gone)
		end(containerd, d.cdGone)
		mounts, _ := os.ReadFile("/proc/self/mounts")
		lines := strings.Split(string(mounts), "\n")
		for i := len(lines) - 1; i >= 0; i-- {
			if f := strings.Fields(lines[i]); len(f) > 1 && strings.HasPrefix(f[1], dir) {
				_ = syscall.Unmount(f[1], syscall.MNT_DETACH)
			}
		}
		if out, err := exec.Command("ip", "link", "delete", d.bridge).CombinedOutput(); err != nil {
			t.Errorf("%v: %s", err, out)
		}
		if t.Failed() {
			b, _ := os.ReadFile(d.path("dockerd.log"))
			t.Logf("--- dockerd\n%s", b[max(0, len(b)-4000):])
		}
		os.RemoveAll(dir)
	})
	containerd, d.cdGone = d.spawn("containerd", "--config", os.DevNull, "--root", d.path("containerd"), "--state",
		d.path("cd"), "--address", d.path("cd.sock"))
	poll(t, "containerd", func() bool {
		return exec.Command("ctr", "--address", d.path("cd.sock"),
			"version").Run() == nil
	})
	d.start()
	return d
}

func (d *dockerd) path(name string) string { return filepath.Join(d.dir, name) }

func (d *dockerd) address() string { return "unix://" + d.path("docker.sock") }

func (d *dockerd) spawn(name string, args ...string) (*exec.Cmd, chan struct{}) {
	d.t.Helper()
	log, err := os.OpenFile(d.path(name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		d.t.Fatal(err)
	}
	defer log.Close()
	cmd, gone := exec.Command(name, args...), make(chan struct{})
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		d.t.Fatal(err)
	}
	go func() { _ = cmd.Wait(); close(gone) }()
	return cmd, gone
}

func (d *dockerd) start() {
	d.t.Helper()
	config := d.path("daemon.json")
	if err := os.WriteFile(config, []byte(cmp.Or(os.Getenv(testnet.DaemonEnv), "{}")), 0o600); err != nil {
		d.t.Fatal(err)
	}
	d.daemon, d.gone = d.spawn("dockerd", "--config-file", config, "--containerd", d.path("cd.sock"), "-H", d.address(),
		"--data-root", d.path("data"),
		"--exec-root", d.path("exec"), "--pidfile", d.path("docker.pid"), "--bridge", d.bridge, "--iptables=false",
		"--ip6tables=false")
	poll(d.t, "dockerd", func() bool { return exec.Command("docker", "-H", d.address(), "version").Run() == nil })
}

// stop ends the daemon as systemd does: with TERM, upon which it stops the containers.
func (d *dockerd) stop() {
	d.t.Helper()
	if err := d.daemon.Process.Signal(syscall.SIGTERM); err != nil {
		d.t.Fatal(err)
	}
	<-d.gone
}

func end(cmd *exec.Cmd, gone chan struct{}) {
	if cmd == nil {
		return
	}
	_ = cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-gone:
	case <-time.After(30 * time.Second):
		_ = cmd.Process.Kill()
		<-gone
	}
}

// The host's engine is stopped under three jobs that handle TERM, each in its own way, and started again. While it is
// away the host reports that, and proves nothing; the jobs were ended by the host, whatever code they left with and
// however long they took. A job that failed before the stop keeps its own exit.
func TestWhatEndsWithTheEngineIsTheHostsDoing(t *testing.T) {
	d := startDockerd(t)
	h := newHostOn(t, d.address())
	var specs []agentapi.LeaseSpec
	for _, command := range [][]string{{"/job", "save", "0", "1"}, {"/job", "save", "5", "1"}, {"/job", "save", "1", "0"},
		{"/job", "exit", "3"}} {
		specs = append(specs, h.spec(command...))
	}
	h.want(specs...)
	for i := range specs {
		h.await(specs[i].LeaseRef, "ready", ready)
		specs[i].Go = true
	}
	h.want(specs...)
	for i := range specs[:3] {
		h.await(specs[i].LeaseRef, "running", running)
	}
	if st := h.await(specs[3].LeaseRef, "done", func(st agentapi.LeaseStatus) bool {
		return st.ExitCode != nil
	}); *st.ExitCode != 3 || st.Reason != agentapi.ReasonExited {
		t.Errorf("a job that fails by itself: %s", replies(st))
	}
	d.stop()
	h.awaitReport("the engine away", func(s agentapi.Sync) bool {
		return s.EngineAway != nil &&
			s.EngineAway.Detail != ""
	})
	h.awaitReport("nothing proved", func(s agentapi.Sync) bool {
		for _, l := range s.Leases {
			if l.Good || strings.Contains(l.TroubleDetail+l.Progress.WaitingFor, d.dir) {
				return false
			}
		}
		return s.EngineAway != nil && !s.Full
	})
	d.start()
	h.awaitReport("a full report without it", func(s agentapi.Sync) bool { return s.EngineAway == nil && s.Full })
	for i := range specs[:3] {
		st := h.await(specs[i].LeaseRef, "ended", func(st agentapi.LeaseStatus) bool { return st.Reason != "" })
		if st.State != agentapi.NodeFailed || st.Reason != agentapi.ReasonHostInterrupted || st.ExitCode != nil {
			t.Errorf("job %d: %s", i, replies(st))
		}
	}
	h.want()
	for i := range specs {
		h.await(specs[i].LeaseRef, "gone", gone)
	}
}
