// Package sharedfstest makes file systems for tests of shared ones.
package sharedfstest

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// Ext4 mounts a new ext4 file system of 500 MB and returns where it is. It stands in for one that several hosts mount:
// hosts of one machine that are given its path see the same files.
func Ext4(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	image, path := filepath.Join(dir, "image"), filepath.Join(dir, "mnt")
	if err := os.WriteFile(image, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(image, 500<<20); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(path, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, c := range [][]string{
		{"mkfs.ext4", "-q", "-E", "lazy_itable_init=1", image}, {"mount", "-o", "loop", image, path},
		{"rmdir", filepath.Join(path, "lost+found")},
	} {
		if out, err := exec.Command(c[0], c[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %v: %s", c, err, out)
		}
	}
	t.Cleanup(func() { _ = exec.Command("umount", "-l", path).Run() })
	return path
}
