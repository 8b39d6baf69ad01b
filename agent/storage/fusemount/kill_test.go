package fusemount

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/agent/storage/fusemount/mounttest"
	"github.com/musterhq/muster/agent/storage/fusemount/wire"
	"github.com/musterhq/muster/internal/agentapi"
)

// TestMain is also the agents that TestAKillAtAnyStep kills.
func TestMain(m *testing.M) {
	if b := os.Getenv("FUSEMOUNT_TEST"); b != "" {
		var a dying
		if err := json.Unmarshal([]byte(b), &a); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		a.run()
	}
	os.Exit(m.Run())
}

// dying is an agent that is killed at a step.
type dying struct {
	Dir, Program, Cache, Step string
	PID                       int
	Detach                    bool
}

var dyingRef = agentapi.LeaseRef{Lease: "lse_dying", Epoch: 1}

// wanted is a volume that is empty: it needs no store.
func (a dying) wanted() Wanted {
	return Wanted{Ref: dyingRef, ID: "vol_dying", PID: a.PID, Version: 1, Config: &wire.Config{Cache: a.Cache,
		Volume: &wire.Volume{PackSet: []byte{}, Key: make([]byte, 32), Packs: filepath.Join(a.Dir, "none")}}}
}

func (a dying) run() {
	reached = func(step string) {
		if step == a.Step {
			_ = unix.Kill(os.Getpid(), unix.SIGKILL)
			select {}
		}
	}
	m := New(Config{Dir: a.Dir, Program: a.Program})
	m.Want(a.wanted())
	if a.Detach {
		for !m.State(dyingRef, "vol_dying").Ready {
			time.Sleep(5 * time.Millisecond)
		}
		_ = m.Detach(context.Background(), dyingRef)
	}
	time.Sleep(20 * time.Second)
	fmt.Fprintf(os.Stderr, "never reached %s: %+v\n", a.Step, m.State(dyingRef, "vol_dying"))
	os.Exit(1)
}

// die starts an agent, and waits until it has been killed at its step.
func (a dying) die(t *testing.T) {
	t.Helper()
	b, err := json.Marshal(a)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "FUSEMOUNT_TEST="+string(b))
	out, err := cmd.CombinedOutput()
	if cmd.ProcessState == nil || cmd.ProcessState.ExitCode() != -1 {
		t.Fatalf("%s: %v: %s", a.Step, err, out)
	}
}

// processes returns those that log to the mount's folder.
func (a dying) processes(f folder) (pids []string) {
	all, _ := filepath.Glob("/proc/[0-9]*")
	for _, p := range all {
		if to, err := os.Readlink(p + "/fd/2"); err == nil && to == f.log() {
			pids = append(pids, filepath.Base(p))
		}
	}
	return pids
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("never: %s", what)
		}
	}
}

// An agent is killed at each step of a start, of a replacement in a running container, and of an end. The next one has
// one process and one mount, which the container has too, and then none.
func TestAKillAtAnyStep(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Fatal("mounts need root: run the tests as root")
	}
	program := mounttest.Program(t)
	for _, c := range []struct {
		step     string
		replaces bool
		detach   bool
	}{
		{"spawned", false, false}, {"noted", false, false}, {"configured", false, false}, {"started", false, false},
		{"answered", false, false},
		{"spawned", true, false}, {"noted", true, false}, {"configured", true, false}, {"about to take away", true, false},
		{"taken away", true, false}, {"put", true, false},
		{"ended", false, true}, {"unmounted", false, true},
	} {
		t.Run(fmt.Sprintf("%s, replaces %t", c.step, c.replaces), func(t *testing.T) {
			a := dying{Dir: t.TempDir(), Program: program, Cache: t.TempDir(), Step: c.step, Detach: c.detach}
			m := New(Config{Dir: a.Dir, Program: program})
			f := m.folder(dyingRef, "vol_dying")
			t.Cleanup(func() { _ = f.remove(context.Background()) })
			ready := func() bool { return m.State(dyingRef, "vol_dying").Ready }
			inside := ""
			if c.replaces {
				m.Want(a.wanted())
				eventually(t, "the first mount", ready)
				a.PID, inside = container(t, m.Point(dyingRef, "vol_dying"))
				m.Close()
				n, pidfd, ok := f.running()
				if !ok || kill(t.Context(), pidfd) != nil {
					t.Fatalf("%+v does not run", n)
				}
				unix.Close(pidfd)
			}
			a.die(t)

			m = New(Config{Dir: a.Dir, Program: program})
			m.Want(a.wanted())
			eventually(t, "the next agent's mount", ready)
			eventually(t, "one process", func() bool { return len(a.processes(f)) == 1 })
			if pid, ok := m.PID(dyingRef, "vol_dying"); !ok || a.processes(f)[0] != fmt.Sprint(pid) {
				t.Errorf("%d is known of %v", pid, a.processes(f))
			}
			own, err := ownMounts("self", m.Source(dyingRef, "vol_dying"))
			if err != nil || len(own) != 1 || own[0].point != f.point() {
				t.Fatalf("%+v, want one mount: %v", own, err)
			}
			if c.replaces {
				if _, err := os.ReadDir(inside); err != nil {
					t.Errorf("in the container: %v", err)
				}
				in, err := ownMounts(fmt.Sprint(a.PID), m.Source(dyingRef, "vol_dying"))
				if err != nil || len(in) != 1 || in[0].device != own[0].device {
					t.Errorf("the container has %+v, the host %+v: %v", in, own, err)
				}
			}
			if err := m.Detach(t.Context(), dyingRef); err != nil {
				t.Error(err)
			}
			if pids := a.processes(f); len(pids) > 0 {
				t.Errorf("%v run after the end", pids)
			}
			if own, err := ownMounts("self", m.Source(dyingRef, "vol_dying")); err != nil || len(own) > 0 {
				t.Errorf("%d mounts after the end: %v", len(own), err)
			}
			if entries, err := os.ReadDir(a.Dir); err != nil || len(entries) > 0 {
				t.Errorf("%v is left: %v", entries, err)
			}
		})
	}
}

// container starts a process with a mount namespace in which only its own bind of a folder is left.
func container(t *testing.T, of string) (pid int, inside string) {
	t.Helper()
	at := filepath.Join(t.TempDir(), "mnt")
	if err := os.Mkdir(at, 0o755); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("unshare", "-m", "--propagation", "private", "sh", "-ec",
		fmt.Sprintf("mount --bind %s %s; umount %s; echo made; exec sleep 1000", of, at, of))
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	if _, err := io.ReadFull(out, make([]byte, 5)); err != nil {
		t.Fatal(err)
	}
	return cmd.Process.Pid, fmt.Sprintf("/proc/%d/root%s", cmd.Process.Pid, at)
}
