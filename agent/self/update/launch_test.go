package update

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/musterhq/muster/internal/agentapi"
)

// launcherEnv makes this test's executable the launcher of the tree and state it names.
const launcherEnv = "MUSTER_TEST_LAUNCHER"

func TestMain(m *testing.M) {
	if dir := os.Getenv(launcherEnv); dir != "" {
		ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
		l := Launcher{
			Tree:  Tree{filepath.Join(dir, "lib")},
			State: filepath.Join(dir, "state"),
			Args:  []string{"run"},
			Log:   slog.New(slog.NewTextHandler(os.Stderr, nil)),
			Poll:  20 * time.Millisecond,
		}
		err := l.Run(ctx)
		stop()
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// place is a machine with versions of the agent that are shell scripts.
type place struct {
	t    *testing.T
	dir  string
	tree Tree
	s    store
}

// lives is a version that runs until it receives SIGTERM.
const lives = `trap 'exit 0' TERM; while :; do sleep 0.05; done`

// fails is one that ends at once.
const fails = `exit 3`

func newPlace(t *testing.T, versions map[string]string) *place {
	t.Helper()
	dir := t.TempDir()
	p := &place{t: t, dir: dir, tree: Tree{filepath.Join(dir, "lib")}, s: storeIn(filepath.Join(dir, "state"))}
	p.must(os.MkdirAll(p.tree.versions(), 0o755))
	p.must(os.MkdirAll(p.s.dir, 0o700))
	for v, body := range versions {
		p.script(p.tree.folder(v), v, body)
	}
	p.must(p.tree.promote("v1.0.0"))
	return p
}

func (p *place) must(err error) {
	p.t.Helper()
	if err != nil {
		p.t.Fatal(err)
	}
}

// script is an agent: it says its version, its doctor is content, and run notes that it runs and does the body.
func (p *place) script(dir, version, body string) {
	p.t.Helper()
	text := fmt.Sprintf(`#!/bin/sh
case $1 in
version) echo "muster-agent %[1]s (protocol 1)"; exit 0 ;;
doctor) cat %[2]s/doctor 2>/dev/null || echo '[{"check":"rights","state":"ok"}]'; exit 0 ;;
esac
echo "%[1]s $$" >>%[2]s/runs
%[3]s
`, version, p.dir, body)
	p.must(os.MkdirAll(dir, 0o755))
	p.must(os.WriteFile(filepath.Join(dir, agentFile), []byte(text), 0o755))
	p.must(os.WriteFile(filepath.Join(dir, guestFile), []byte("guest"), 0o755))
}

func (p *place) runs() []string {
	b, _ := os.ReadFile(filepath.Join(p.dir, "runs"))
	return strings.Fields(string(b))
}

func (p *place) memory() memory {
	p.t.Helper()
	m, err := p.s.load()
	p.must(err)
	return m
}

// launch runs a launcher in this process until it would become an agent, and says of which version.
func (p *place) launch() string {
	p.t.Helper()
	become := ""
	l := Launcher{
		Tree:   p.tree,
		State:  filepath.Join(p.dir, "state"),
		Args:   []string{"run"},
		Log:    slog.New(slog.NewTextHandler(p.t.Output(), nil)),
		Poll:   20 * time.Millisecond,
		become: func(program string, _, _ []string) error { become = program; return nil },
	}
	p.must(l.Run(p.t.Context()))
	_, version, ok := Of(become)
	if !ok {
		p.t.Fatalf("it becomes %s", become)
	}
	return version
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); !ok(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("not within two minutes: " + what)
		}
	}
}

func TestAVersionThatProvesItselfBecomesTheCurrentOne(t *testing.T) {
	t.Parallel()
	p := newPlace(t, map[string]string{"v0.9.0": lives, "v1.0.0": lives, "v1.1.0": lives})
	if got := p.launch(); got != "v1.0.0" {
		t.Fatalf("without a trial it becomes %s", got)
	}
	if p.tree.installed("v0.9.0") {
		t.Error("a version that nothing needs is still there")
	}
	p.script(p.tree.folder("v1.1.0"), "v1.1.0", lives) // it was pruned, too
	p.must(p.s.save(memory{Trial: &trial{Version: "v1.1.0", Try: 1, From: "v1.0.0"}}))
	became := make(chan string, 1)
	go func() { became <- p.launch() }()
	eventually(t, "it runs", func() bool { return len(p.runs()) == 2 })
	p.must(p.s.prove(proof{"v1.1.0", 1}))
	if got := <-became; got != "v1.1.0" {
		t.Errorf("it becomes %s", got)
	}
	m := p.memory()
	if m.Trial != nil || m.Last.State != agentapi.UpdateDone || m.Last.Version != "v1.1.0" || m.Previous != "v1.0.0" {
		t.Errorf("%+v", m)
	}
	if !p.tree.installed("v1.0.0") {
		t.Error("the version before is gone")
	}
}

func TestAVersionThatEndsIsGivenUp(t *testing.T) {
	t.Parallel()
	p := newPlace(t, map[string]string{"v1.0.0": lives, "v1.1.0": fails})
	p.must(p.s.save(memory{Trial: &trial{Version: "v1.1.0", Try: 4, From: "v1.0.0"}}))
	if got := p.launch(); got != "v1.0.0" {
		t.Errorf("it becomes %s", got)
	}
	if m := p.memory(); m.Trial != nil || m.Last.State != agentapi.UpdateRolledBack || m.Last.Try != 4 ||
		!strings.Contains(m.Last.Detail, "exit status 3") {
		t.Errorf("%+v", m)
	}
	if got := len(p.runs()) / 2; got != maxAttempts {
		t.Errorf("it was started %d times", got)
	}
}

func TestAVersionThatDoesNotProveItselfIsGivenUp(t *testing.T) {
	t.Parallel()
	for limit := 500 * time.Millisecond; ; limit *= 4 {
		p := newPlace(t, map[string]string{"v1.0.0": lives, "v1.1.0": lives})
		tr := &trial{Version: "v1.1.0", Try: 1, From: "v1.0.0"}
		p.must(p.s.save(memory{Trial: tr}))
		p.must(p.s.prove(proof{"v1.1.0", 0})) // an earlier try's
		p.must(p.s.lacks(tr, "no report of it was taken by the server"))
		become := ""
		l := Launcher{
			Tree:   p.tree,
			State:  filepath.Join(p.dir, "state"),
			Args:   []string{"run"},
			Log:    slog.New(slog.NewTextHandler(t.Output(), nil)),
			Limit:  limit,
			Poll:   20 * time.Millisecond,
			become: func(program string, _, _ []string) error { become = program; return nil },
		}
		p.must(l.Run(t.Context()))
		if _, v, _ := Of(become); v != "v1.0.0" {
			t.Errorf("it becomes %s", become)
		}
		if m := p.memory(); m.Last.State != agentapi.UpdateRolledBack ||
			!strings.Contains(m.Last.Detail, "no report of it") || len(p.runs()) > 2 {
			t.Errorf("%+v after %v", m, p.runs())
		}
		if len(p.runs()) == 2 || t.Failed() {
			return
		}
		// The machine is so slow that it was given up before its first word: it gets longer.
	}
}

// A launcher that is killed takes the version on trial with it, and the next one goes on with the trial.
func TestALauncherIsKilledInATrial(t *testing.T) {
	t.Parallel()
	p := newPlace(t, map[string]string{"v1.0.0": lives, "v1.1.0": lives})
	p.must(p.s.save(memory{Trial: &trial{Version: "v1.1.0", Try: 1, From: "v1.0.0"}}))
	start := func() *exec.Cmd {
		t.Helper()
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), launcherEnv+"="+p.dir)
		cmd.Stderr = t.Output()
		p.must(cmd.Start())
		return cmd
	}
	first := start()
	eventually(t, "it runs", func() bool { return len(p.runs()) == 2 })
	p.must(first.Process.Kill())
	_ = first.Wait()
	child := "/proc/" + p.runs()[1]
	eventually(t, "the version on trial is gone", func() bool {
		b, err := os.ReadFile(child + "/cmdline")
		return err != nil || len(b) == 0
	})
	second := start()
	eventually(t, "it runs again", func() bool { return len(p.runs()) == 4 })
	if a := p.memory().Trial.Attempts; a != 2 {
		t.Errorf("%d attempts", a)
	}
	p.must(second.Process.Signal(syscall.SIGTERM)) // the machine is restarted: that is no fault of the version
	p.must(second.Wait())
	if m := p.memory(); m.Trial == nil || m.Trial.Attempts != 1 {
		t.Errorf("%+v", m)
	}
	p.must(p.s.prove(proof{"v1.1.0", 1}))
	if got := p.launch(); got != "v1.1.0" {
		t.Errorf("it becomes %s", got)
	}
}

// Every moment at which a launcher may have been killed is a state of the disk, and from each it gets to the right end.
func TestWhereverItWasKilledALauncherGoesOn(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		alter func(*place)
		want  string
		state agentapi.UpdateState
	}{
		"an unfinished download": {func(p *place) {
			p.must(os.MkdirAll(filepath.Join(p.tree.versions(), ".new-1"),
				0o755))
		}, "v1.0.0", ""},
		"installed, no trial": {func(p *place) {}, "v1.0.0", ""},
		"a trial whose files are gone": {func(p *place) { p.trial(0); p.must(os.RemoveAll(p.tree.folder("v1.1.0"))) },
			"v1.0.0", agentapi.UpdateRolledBack},
		"in the last attempt": {func(p *place) { p.trial(maxAttempts) }, "v1.0.0", agentapi.UpdateRolledBack},
		"proven, not promoted": {func(p *place) { p.trial(maxAttempts); p.must(p.s.prove(proof{"v1.1.0", 1})) }, "v1.1.0",
			agentapi.UpdateDone},
		"a link half made": {func(p *place) {
			p.trial(1)
			p.must(p.s.prove(proof{"v1.1.0", 1}))
			p.must(os.Symlink("x", p.tree.currentPath()+".new"))
		}, "v1.1.0", agentapi.UpdateDone},
		"promoted, not noted": {func(p *place) { p.trial(1); p.must(p.tree.promote("v1.1.0")) }, "v1.1.0",
			agentapi.UpdateDone},
		"another was installed by hand": {func(p *place) {
			p.must(p.s.save(memory{Trial: &trial{Version: "v1.1.0", Try: 1, From: "v0.9.0"}}))
			p.must(p.s.prove(proof{"v1.1.0", 1}))
		}, "v1.0.0", ""},
		"a memory that cannot be read": {func(p *place) {
			p.must(os.WriteFile(filepath.Join(p.s.dir, "update.json"),
				[]byte("{"), 0o600))
		}, "v1.0.0", ""},
		"given up, and the proof came late": {func(p *place) {
			p.must(p.s.save(memory{Last: agentapi.UpdateStatus{State: agentapi.UpdateRolledBack, Version: "v1.1.0", Try: 1}}))
			p.must(p.s.prove(proof{"v1.1.0", 1}))
		}, "v1.0.0", agentapi.UpdateRolledBack},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPlace(t, map[string]string{"v1.0.0": lives, "v1.1.0": lives})
			tc.alter(p)
			for range 2 { // the second start changes nothing
				if got := p.launch(); got != tc.want {
					t.Fatalf("it becomes %s, want %s", got, tc.want)
				}
			}
			if m, err := p.s.load(); err == nil && (m.Last.State != tc.state || m.Trial != nil) {
				t.Errorf("%+v", m)
			}
			if left, _ := filepath.Glob(filepath.Join(p.tree.versions(), ".new-*")); len(left) > 0 {
				t.Errorf("left: %v", left)
			}
		})
	}
}

func (p *place) trial(attempts int) {
	p.t.Helper()
	p.must(p.s.save(memory{Trial: &trial{
		Version:  "v1.1.0",
		Try:      1,
		From:     "v1.0.0",
		Attempts: attempts,
		Trouble:  "exit status 1",
	}}))
}
