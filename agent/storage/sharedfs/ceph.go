package sharedfs

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// snapshotsDir is where each folder of CephFS has its snapshots. Folders do not list it.
const snapshotsDir = ".snap"

// isCeph reports whether a type of the kernel is CephFS, with the kernel's client or with the one in user space.
func isCeph(kind string) bool { return kind == "ceph" || kind == "fuse.ceph-fuse" }

// errPowerful is the error of a CephFS that is mounted with a key that would let containers out of their quota.
var errPowerful = errors.New("programs in containers could make snapshots, which count towards no quota and cannot " +
	"be deleted with the folder, or change Ceph's own quotas: mount it with a key that may not (ceph fs authorize " +
	"FILESYSTEM client.NAME PATH rw)")

// mayTooMuch returns errPowerful if the host's key for Ceph may make snapshots (the right s) or set quotas and layouts
// (p). A program in a container has the same rights: the client does not know one from the other.
func mayTooMuch(top int) error {
	name := "rights." + rand.Text()
	if err := mkdir(top, name, 0o700); err != nil {
		return err
	}
	defer unix.Unlinkat(top, name, unix.AT_REMOVEDIR)
	dir, err := openDir(top, name)
	if err != nil {
		return err
	}
	defer unix.Close(dir)
	const snapshot = snapshotsDir + "/muster"
	switch err := unix.Mkdirat(dir, snapshot, 0o700); {
	case err == nil:
		return errors.Join(errPowerful, unix.Unlinkat(dir, snapshot, unix.AT_REMOVEDIR))
	case !errors.Is(err, unix.EPERM) && !errors.Is(err, unix.EACCES) && !errors.Is(err, unix.ENOENT):
		return fmt.Errorf("try to make a snapshot: %w", err) // ENOENT: the administrator has switched them off
	}
	switch err := unix.Fsetxattr(dir, "ceph.quota.max_files", []byte("0"), 0); {
	case err == nil:
		return errPowerful
	case !errors.Is(err, unix.EPERM) && !errors.Is(err, unix.EACCES):
		return fmt.Errorf("try to set a quota: %w", err)
	}
	return nil
}

// dropSnapshots deletes the snapshots of a folder, which keep it from being deleted. It returns how many there were.
// Those of the folders above are listed with _ as their first letter.
func dropSnapshots(dir int) (n int, err error) {
	fd, err := openDir(dir, snapshotsDir)
	if errors.Is(err, unix.ENOENT) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	f := os.NewFile(uintptr(fd), "")
	defer f.Close()
	for {
		names, err := f.Readdirnames(512)
		if errors.Is(err, io.EOF) {
			return n, nil
		}
		if err != nil {
			return n, err
		}
		for _, name := range names {
			if name[0] == '_' {
				continue
			}
			if err := unix.Unlinkat(fd, name, unix.AT_REMOVEDIR); err != nil && !errors.Is(err, unix.ENOENT) {
				return n, fmt.Errorf("delete a snapshot in it: %w", err)
			}
			n++
		}
	}
}
