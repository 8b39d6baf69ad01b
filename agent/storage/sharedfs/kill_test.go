package sharedfs

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/agent/storage/sharedfs/sharedfstest"
	"github.com/musterhq/muster/internal/agentapi"
)

// TestMain is also the agents that TestAKillAtAnyStep kills.
func TestMain(m *testing.M) {
	if step := os.Getenv("SHAREDFS_TEST"); step != "" {
		reached = func(at string) {
			if at == step {
				_ = unix.Kill(os.Getpid(), unix.SIGKILL)
				select {}
			}
		}
		at, marker := os.Getenv("SHAREDFS_PATH"), os.Getenv("SHAREDFS_MARKER")
		_ = NewShare(Declared{"lab", at}).Bind(context.Background(), aFolder(marker), os.Getenv("SHAREDFS_POINT"))
		_ = Unbind(os.Getenv("SHAREDFS_POINT"))
		os.Exit(1)
	}
	os.Exit(m.Run())
}

func aFolder(marker string) agentapi.SharedMount {
	return agentapi.SharedMount{Name: "lab", Path: "/shared", Folder: "shd_a", Marker: marker, Mode: agentapi.MountRO}
}

// An agent is killed at each step of a mount and of its end. The next one has one mount, as restricted as it must be,
// and then none; what is in the folder stays.
func TestAKillAtAnyStep(t *testing.T) {
	path := sharedfstest.Ext4(t)
	share := NewShare(Declared{"lab", path})
	marker := share.Inspect(t.Context()).Marker
	for _, step := range []string{"folder", "cloned", "mounted", "unmounted"} {
		point := filepath.Join(t.TempDir(), "point")
		t.Cleanup(func() { _ = Unbind(point) })
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), "SHAREDFS_TEST="+step, "SHAREDFS_PATH="+path, "SHAREDFS_MARKER="+marker,
			"SHAREDFS_POINT="+point)
		if out, err := cmd.CombinedOutput(); err == nil || cmd.ProcessState.ExitCode() != -1 {
			t.Fatalf("%s: %v: %s", step, err, out)
		}
		for range 2 {
			if err := share.Bind(t.Context(), aFolder(marker), point); err != nil {
				t.Fatal(err)
			}
		}
		found := mountsAt(t, point)
		if len(found) != 1 || !strings.HasPrefix(found[0], "ro,nosuid,nodev") {
			t.Errorf("%s: mounted with %q", step, found)
		}
		inside := filepath.Join(path, ".muster", "folders", "shd_a", step)
		if err := os.WriteFile(inside, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := Unbind(point); err != nil {
			t.Error(err)
		}
		if left := mountsAt(t, point); len(left) > 0 {
			t.Errorf("%s: left with %q", step, left)
		}
		if _, err := os.Stat(inside); err != nil {
			t.Errorf("%s: what was in the folder: %v", step, err)
		}
	}
}

// mountsAt returns the options of what is mounted at a path.
func mountsAt(t *testing.T, point string) (out []string) {
	t.Helper()
	b, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		if f := strings.Fields(line); f[4] == point {
			out = append(out, f[5])
		}
	}
	return out
}
