// Package mounttest builds muster-mount for tests.
package mounttest

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"testing"
)

// Program returns the path of muster-mount: that of MUSTER_BIN, or one that is built for the test. It fails the test if
// there can be none.
func Program(t testing.TB) string {
	t.Helper()
	if bin := os.Getenv("MUSTER_BIN"); bin != "" {
		if p := filepath.Join(bin, "muster-mount"); exists(p) {
			return p
		}
	}
	p, err := build()
	if err != nil {
		t.Fatalf("build muster-mount: %v", err)
	}
	return p
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

var build = sync.OnceValues(func() (string, error) {
	_, here, _, _ := runtime.Caller(0)
	dir, err := os.MkdirTemp("", "muster-mount")
	if err != nil {
		return "", err
	}
	out := filepath.Join(dir, "muster-mount")
	cmd := exec.Command("go", "build", "-ldflags", "-s -w", "-o", out, ".")
	cmd.Dir = filepath.Join(filepath.Dir(here), "../../../../cmd/muster-mount")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	cmd.Stderr = os.Stderr
	return out, cmd.Run()
})
