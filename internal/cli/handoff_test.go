package cli

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/musterhq/muster/internal/cli/platform"
)

// tested is the program whose commands these tests run: musterd, which has them all.
var tested = Program{Version: "test", Platform: platform.Commands}

// muster has each command that musterd has.
func TestHandoff_HasEveryCommandOfThePlatform(t *testing.T) {
	t.Parallel()
	names := func(commands []*cobra.Command) (out []string) {
		for _, c := range commands {
			out = append(out, c.Name()+": "+c.Short)
		}
		return out
	}
	if got, want := names(Handoff()), names(platform.Commands()); !slices.Equal(got, want) {
		t.Errorf("muster hands over %q, musterd has %q", got, want)
	}
}

// musterd is looked for on PATH, and nowhere relative to the working folder. What is no program is not it.
func TestHandoff_FindsMusterd(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	put := func(folder string, mode os.FileMode) string {
		path := filepath.Join(dir, folder, daemon)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, nil, mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	put("text", 0o644)
	put("here", 0o755)
	if got, err := findDaemon([]string{"PATH=here:" + dir + "/text:/nowhere"}); err == nil ||
		!strings.Contains(err.Error(), "make build") {
		t.Errorf("found %q, %v", got, err)
	}
	want := put("bin", 0o755)
	if got, err := findDaemon([]string{"PATH=" + dir + "/text:" + dir + "/bin"}); got != want || err != nil {
		t.Errorf("found %q, %v; want %q", got, err, want)
	}
}
