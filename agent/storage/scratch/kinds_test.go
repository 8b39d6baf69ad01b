//go:build disk

package scratch

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// diskOf is a disk of its own for a test, with another file system than ext4, on which an operator may keep scratches.
func diskOf(t *testing.T, kind string) *Store {
	t.Helper()
	dir, image := filepath.Join(t.TempDir(), "nvme"), filepath.Join(t.TempDir(), "image")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	// no blocks of the test's disk but what is written
	file, err := os.OpenFile(image, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if err := file.Truncate(512 * mb); err != nil {
		t.Fatal(err)
	}
	args := map[string][]string{"xfs": {"-q", "-s", "size=4096", image}, "btrfs": {"-q", image}}[kind]
	if out, err := exec.CommandContext(t.Context(), "mkfs."+kind, args...).CombinedOutput(); err != nil {
		t.Fatalf("mkfs.%s: %v: %s", kind, err, out)
	}
	device, err := attach(int(file.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	defer device.Close()
	if err := unix.Mount(device.Name(), dir, kind, unix.MS_NOATIME, ""); err != nil {
		t.Fatalf("mount %s: %v", kind, err)
	}
	return storeAt(t, dir)
}

// What is promised of a scratch holds on every file system that the doctor takes: its size, to the last byte and when
// others fill the disk; nothing of it in the next; a kill at any step; a disk that dies.
func TestScratchOnOtherFileSystems(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"xfs", "btrfs"} {
		for name, test := range map[string]func(*testing.T, *Store){
			"full scratch":        aFullScratch,
			"full disk":           onAFullDisk,
			"nothing in the next": nothingInTheNext,
			"dead disk":           onADeadDisk,
			"read-only":           mountedReadOnly,
			"vanished":            vanished,
		} {
			if kind == "btrfs" && name == "dead disk" {
				continue // it has no way to be shut down
			}
			t.Run(kind+" "+name, func(t *testing.T) {
				t.Parallel()
				test(t, diskOf(t, kind))
			})
		}
		for _, step := range steps {
			t.Run(kind+" killed at "+step, func(t *testing.T) {
				t.Parallel()
				killedAt(t, diskOf(t, kind), step)
			})
		}
	}
}
