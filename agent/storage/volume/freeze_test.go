package volume

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/musterhq/muster/agent/storage/scratch"
)

// freezeAndWait is the process that is killed while its freeze lasts.
func freezeAndWait() {
	pid, err := strconv.Atoi(os.Getenv("VOLUME_TEST_PID"))
	if err == nil {
		var g *Group
		if g, err = NewGroup(pid, os.Getenv("VOLUME_TEST_DIR"), thawCommand()); err == nil {
			err = g.Freeze(context.Background())
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println("ready")
	select {}
}

// When the process that froze a node is killed or hangs, its guard process thaws the node.
func TestAFreezeEndsWithItsProcess(t *testing.T) {
	for _, how := range []string{"killed", "hangs"} {
		t.Run(how, func(t *testing.T) {
			root := newRoot(t)
			w := inGroupOf(t, "VOLUME_TEST=writer", "VOLUME_TEST_DIR="+scratch.Data(root))
			cmd := exec.Command(os.Args[0])
			cmd.Env = append(os.Environ(), "VOLUME_TEST=freezer", "VOLUME_TEST_DIR="+t.TempDir(),
				"VOLUME_TEST_PID="+strconv.Itoa(w.Process.Pid))
			cmd.Stderr = os.Stderr
			out, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
			if _, err := out.Read(make([]byte, 6)); err != nil {
				t.Fatal("nothing was frozen")
			}
			g, err := groupOf(w.Process.Pid)
			if err != nil {
				t.Fatal(err)
			}
			begun := time.Now()
			if how == "killed" {
				if ok, err := g.stopped(); err != nil || !ok {
					t.Logf("thawed before it was looked at: %v", err)
				}
				if err := cmd.Process.Signal(syscall.SIGKILL); err != nil {
					t.Fatal(err)
				}
			}
			eventually(t, "the thaw", func() bool { ok, err := g.stopped(); return err == nil && !ok })
			t.Logf("thawed after %v", time.Since(begun))
		})
	}
}

// Both were killed: the next start thaws by the record.
func TestTheNextStartThaws(t *testing.T) {
	root := newRoot(t)
	w := inGroupOf(t, "VOLUME_TEST=writer", "VOLUME_TEST_DIR="+scratch.Data(root))
	records := t.TempDir()
	g, err := NewGroup(w.Process.Pid, records, thawCommand())
	if err != nil {
		t.Fatal(err)
	}
	if err := g.Freeze(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := g.guard.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = g.guard.cmd.Wait()
	if ok, err := g.group.stopped(); err != nil || !ok {
		t.Fatalf("the node is not frozen: %v", err)
	}
	if err := ThawAll(records); err != nil {
		t.Fatal(err)
	}
	if ok, err := g.group.stopped(); err != nil || ok {
		t.Errorf("the node is still frozen: %v", err)
	}
}

// Neither the machine's group nor the agent's own is ever frozen.
func TestOnlyANodesGroupIsFrozen(t *testing.T) {
	t.Parallel()
	for _, pid := range []int{1, os.Getpid()} {
		if g, err := groupOf(pid); err == nil {
			t.Errorf("process %d would be frozen with %+v", pid, g)
		}
	}
}
