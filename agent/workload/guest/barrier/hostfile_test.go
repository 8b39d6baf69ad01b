package barrier

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/musterhq/muster/agent/workload/guest"
)

func TestHostfileIsLinkedUnlessTheImageHasAJobFolder(t *testing.T) {
	t.Parallel()
	folder := func(dir string) error { return os.Mkdir(dir, 0o755) }
	file := func(dir string) error { return os.WriteFile(dir, nil, 0o600) }
	none := func(string) error { return nil }
	for name, c := range map[string]struct {
		nodes  string
		before func(dir string) error
		linked bool
	}{
		"no folder":         {"2", none, true},
		"a folder":          {"2", folder, false},
		"a file":            {"2", file, false},
		"one node":          {"1", none, false},
		"no number of them": {"", none, false},
	} {
		dir := filepath.Join(t.TempDir(), "job")
		if err := c.before(dir); err != nil {
			t.Fatal(err)
		}
		Init{NodeDir: guest.NodeDir, JobDir: dir, Env: []string{"NNODES=" + c.nodes}}.linkHostfile()
		to, err := os.Readlink(filepath.Join(dir, "hostfile"))
		if (err == nil) != c.linked || c.linked && to != guest.NodeDir+"/hostfile" {
			t.Errorf("%s: %q, %v", name, to, err)
		}
	}
}
