package deploy

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

// A release whose agent needs a newer glibc than hosts are promised is refused, and what it asks for is named. This
// test is such a program: the race detector links it against glibc, as cgo does the agent.
func TestAReleaseThatNeedsANewerGlibcIsRefused(t *testing.T) {
	t.Parallel()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	check := func(args ...string) (string, error) {
		out, err := exec.CommandContext(t.Context(), "../scripts/release-glibc", args...).CombinedOutput()
		return string(out), err
	}
	program := self
	if _, err := check(program, "99.0"); err != nil {
		program = "/bin/sh" // built without cgo
		if out, err := check(program, "99.0"); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	if out, err := check(program, "2.0"); err == nil || !strings.Contains(out, "needs glibc 2.") ||
		!strings.Contains(out, "@GLIBC_2.") {
		t.Errorf("one that needs a newer glibc passes, or is not told why: %v\n%s", err, out)
	}
	if out, err := check("release_test.go"); err == nil || !strings.Contains(out, "names no version") {
		t.Errorf("what is no program passes: %v\n%s", err, out)
	}
}
