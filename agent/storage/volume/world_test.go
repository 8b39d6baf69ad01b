package volume

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/musterhq/muster/agent/storage/scratch"
	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/id"
)

// TestMain is also the processes that tests start: the writer with an invariant, and the one that thaws.
func TestMain(m *testing.M) {
	if len(os.Args) > 2 && os.Args[1] == "thaw" { // first: it inherits the environment of the process that freezes
		os.Exit(Guard(os.Args[2:], os.Stdin, os.Stdout))
	}
	switch os.Getenv("VOLUME_TEST") {
	case "writer":
		writer(os.Getenv("VOLUME_TEST_DIR"))
	case "snapshot":
		snapshotOnce()
	case "freezer":
		freezeAndWait()
	}
	os.Exit(m.Run())
}

func thawCommand() []string { return []string{os.Args[0], "thaw"} }

// newRoot is the file system of a volume, as long as the test.
func newRoot(t *testing.T) string {
	t.Helper()
	s := scratch.New(t.TempDir(), 0, "0badcafe")
	ref := agentapi.LeaseRef{Lease: id.New[id.Lease]().String(), Epoch: 1}
	if err := s.MakeVolume(t.Context(), ref, "vol_test", 64<<20); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Sweep(func(agentapi.LeaseRef) bool { return false }); err != nil {
			t.Error(err)
		}
	})
	return s.VolumePath(ref, "vol_test")
}

// newCut is a cutter of the volume at a path.
func newCut(t *testing.T, root string) *cut {
	t.Helper()
	if err := os.MkdirAll(filepath.Join(root, cutName), 0o700); err != nil {
		t.Fatal(err)
	}
	data, err := os.Open(scratch.Data(root))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { data.Close() })
	dir, err := os.Open(filepath.Join(root, cutName))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { dir.Close() })
	c, err := openClones(int(dir.Fd()), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.dir.Close() })
	return &cut{data: int(data.Fd()), clones: c, now: time.Now}
}

// contents returns what a tree holds of files, by path.
func (c *cut) contents(t *testing.T, tr *tree) map[string]string {
	t.Helper()
	out := map[string]string{}
	var walk func(path string, n *node)
	walk = func(path string, n *node) {
		if n.isFile() {
			var b []byte
			if n.Clone != 0 {
				f, err := c.clones.open(n.Clone)
				if err != nil {
					t.Fatal(err)
				}
				defer f.Close()
				b = make([]byte, n.Size)
				if k, err := f.ReadAt(b, 0); err != nil || k != len(b) {
					t.Fatalf("%s: a clone of %d bytes where %d were seen: %v", path, k, len(b), err)
				}
			}
			out[path] = string(b)
		}
		if n.isLink() {
			out[path] = "-> " + n.Target
		}
		for _, k := range n.Kids {
			walk(path+"/"+k.Name, k)
		}
	}
	walk("", tr.Root)
	return out
}

// inGroupOf starts this test's executable in a new control group.
func inGroupOf(t *testing.T, env ...string) *exec.Cmd {
	t.Helper()
	dir := filepath.Join(cgroups, "freezer")
	if _, err := os.Stat(dir); err != nil {
		dir = cgroups
	}
	dir = filepath.Join(dir, fmt.Sprintf("muster-test-%d-%d", os.Getpid(), groups.Add(1)))
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		eventually(t, "the end of a control group", func() bool { return os.Remove(dir) == nil })
	})
	// The shell joins the group and becomes the process.
	cmd := exec.Command("sh", "-c", `echo $$ > "$0"/cgroup.procs && exec "$1"`, dir, os.Args[0])
	cmd.Env = append(os.Environ(), env...)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if g, err := groupOf(cmd.Process.Pid); err == nil {
			_ = g.thaw() // a frozen process does not end
		}
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	if line := make([]byte, 6); true {
		if _, err := out.Read(line); err != nil {
			t.Fatalf("the process did not begin: %v", err)
		}
	}
	return cmd
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(time.Minute)
	for !ok() {
		if time.Now().After(deadline) {
			t.Errorf("%s did not come", what)
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
}
