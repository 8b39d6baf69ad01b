package update

import (
	"os"
	"path/filepath"
	"testing"
)

func TestWentBack(t *testing.T) {
	t.Parallel()
	state := t.TempDir()
	went := func(version, want string) {
		t.Helper()
		if got := WentBack(state, version); got != want {
			t.Errorf("%s went back from %q, want %q", version, got, want)
		}
	}
	note := func(version string) {
		t.Helper()
		if err := Note(state, version); err != nil {
			t.Fatal(err)
		}
	}
	went("v1.0.0", "") // nothing has run here
	note("dev")        // no release
	went("v1.0.0", "")
	note("v1.0.0")
	note("v1.2.0")
	note("v1.1.0") // it went back
	went("v1.1.0", "v1.2.0")
	went("v1.2.0", "")
	went("v1.2.0-4-gabcdef", "")
	went("dev", "")
	// A file that cannot be read is ignored, and replaced.
	file := filepath.Join(state, "update", "newest.json")
	if err := os.WriteFile(file, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	went("v1.1.0", "")
	note("v1.1.0")
	note("v1.3.0")
	went("v1.1.0", "v1.3.0")
}
