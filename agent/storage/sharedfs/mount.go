package sharedfs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/agent/storage/mountns"
	"github.com/musterhq/muster/agent/storage/scratch"
)

// reached is called at each step, by tests that kill the process there.
var reached = func(string) {}

// bind mounts an organisation's folder at point on the host, for Docker to bind into a container: without devices and
// setuid programs, and without writing if readOnly. A mount of the same folder that is there already stays.
func bind(path, marker, name, point string, readOnly bool) error {
	return scratch.OnHost(func() error {
		fd, err := openFolder(path, marker, name)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		if err := os.MkdirAll(filepath.Dir(point), 0o700); err != nil {
			return err
		}
		// What is mounted at the point may be of a client that has died: nothing can be asked of it.
		if err := unix.Mkdir(point, 0o700); err != nil && !errors.Is(err, unix.EEXIST) {
			return err
		}
		reached("folder")
		if same, err := mountedHere(point, fd); err != nil || same {
			return err
		}
		tree, err := unix.OpenTree(fd, "", unix.AT_EMPTY_PATH|unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
		if err != nil {
			return fmt.Errorf("clone the mount: %w", err)
		}
		defer unix.Close(tree)
		reached("cloned")
		attr := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_NODEV | unix.MOUNT_ATTR_NOSUID, Propagation: unix.MS_PRIVATE}
		if readOnly {
			attr.Attr_set |= unix.MOUNT_ATTR_RDONLY
		}
		if err := unix.MountSetattr(tree, "", unix.AT_EMPTY_PATH, &attr); err != nil {
			return fmt.Errorf("restrict the mount: %w", err)
		}
		if err := unix.MoveMount(tree, "", unix.AT_FDCWD, point, unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
			return fmt.Errorf("mount the folder: %w", err)
		}
		reached("mounted")
		return nil
	})
}

// openFolder opens the folder of an organisation on the file system that is mounted at path, if it is the one with the
// marker.
func openFolder(path, want, name string) (int, error) {
	root, err := openRoot(path)
	if err != nil {
		return -1, err
	}
	defer unix.Close(root)
	t, err := top(root)
	if err != nil {
		return -1, err
	}
	defer unix.Close(t)
	if got, err := readMarker(t); err != nil || got != want {
		return -1, errors.Join(errOther, err)
	}
	return folder(t, name)
}

// errOther is the error of a host on which another file system is mounted than the one that is meant.
var errOther = errors.New("another file system than the one of that name is mounted on this host")

// mountedHere reports whether the folder that fd is open on is mounted at point. A mount of another file system, or of
// one whose client has died, was made before the operator mounted it again, and is taken away.
func mountedHere(point string, fd int) (bool, error) {
	var at, want unix.Statx_t
	err := unix.Statx(unix.AT_FDCWD, point, unix.AT_SYMLINK_NOFOLLOW|unix.AT_NO_AUTOMOUNT, unix.STATX_INO, &at)
	if err == nil && at.Attributes&unix.STATX_ATTR_MOUNT_ROOT == 0 {
		return false, nil
	}
	if err == nil {
		err = unix.Statx(fd, "", unix.AT_EMPTY_PATH, unix.STATX_INO, &want)
	}
	if err == nil && at.Ino == want.Ino && at.Dev_major == want.Dev_major && at.Dev_minor == want.Dev_minor {
		return true, nil
	}
	return false, unmountHere(point)
}

// unbind takes a mount of bind away, and its folder.
func unbind(point string) error {
	err := scratch.OnHost(func() error { return unmountHere(point) })
	if err != nil {
		return err
	}
	reached("unmounted")
	if err := unix.Rmdir(point); err != nil && !errors.Is(err, unix.ENOENT) { // never what is in it
		return fmt.Errorf("remove the folder of a mount: %w", err)
	}
	return nil
}

func unmountHere(point string) error {
	for {
		switch err := unix.Unmount(point, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW); {
		case errors.Is(err, unix.EINVAL), errors.Is(err, unix.ENOENT): // nothing is mounted there
			return nil
		case err != nil:
			return fmt.Errorf("unmount a shared folder: %w", err)
		}
	}
}

// errWritten is the error of a mount that cannot be closed: a program has a file open for writing.
var errWritten = errors.New("a program has a file open for writing there")

// closeIn makes the mounts of an organisation's folder read-only in the container of a process. Programs that have a
// file open for writing prevent it: errWritten.
func closeIn(pid int, name string) error {
	return mountns.OnThread(func() error { return closeHere(pid, name) })
}

func closeHere(pid int, name string) error {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/mountinfo", pid))
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH) || errors.Is(err, unix.EINVAL) {
		return nil // it has ended
	}
	if err != nil {
		return fmt.Errorf("list the container's mounts: %w", err)
	}
	points, found := pointsOf(string(b), name)
	if !found {
		return errNoPoint
	}
	ns, err := mountns.Open(pid)
	if err != nil {
		return err
	}
	defer ns.Close()
	if err := mountns.Enter(ns); err != nil {
		return err
	}
	for _, p := range points {
		if err := closeAt(p); err != nil {
			return err
		}
	}
	return nil
}

// Closed reports whether an organisation's folder is mounted in the container of a process, and read-only only.
func Closed(pid int, folder string) bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/mountinfo", pid))
	if err != nil { // it has ended
		return false
	}
	points, found := pointsOf(string(b), folder)
	return found && len(points) == 0
}

// point is a mount in a container.
type point struct {
	id   uint64
	path string
}

// errNoPoint is the error of a container that has no mount of the folder, as far as the kernel's list shows.
var errNoPoint = errors.New("the folder's mount is not found in the container")

// dropped is what the kernel adds to the name of a mounted folder that it has dropped from its cache of names. Programs
// go on writing there.
const dropped = "//deleted"

// pointsOf returns where a folder is mounted for writing, from a process's list of mounts, and whether it is mounted at
// all. The workload cannot mount anything itself. Most file systems list the folder as the root of its mount; NFS lists
// it as part of the source (server:/path).
func pointsOf(mounts, name string) (out []point, found bool) {
	unescape := strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)
	is := func(path string) bool {
		return strings.HasSuffix(strings.TrimSuffix(path, dropped), "/"+topDir+"/"+orgsDir+"/"+name)
	}
	for line := range strings.Lines(mounts) {
		head, tail, _ := strings.Cut(line, " - ")
		f, fs := strings.Fields(head), strings.Fields(tail)
		if len(f) < 6 || len(fs) < 2 || !is(f[3]) && !is(fs[1]) {
			continue
		}
		id, err := strconv.ParseUint(f[0], 10, 64)
		if err != nil {
			continue
		}
		found = true
		if strings.HasPrefix(f[5]+",", "rw,") {
			out = append(out, point{id, unescape.Replace(f[4])})
		}
	}
	return out, found
}

// closeAt makes a mount read-only. The workload may have renamed folders above it, or put links there: they are not
// followed, and the mount at the path must be the listed one.
func closeAt(p point) error {
	dir, err := mountns.OpenParent(p.path)
	if err != nil {
		return err
	}
	defer unix.Close(dir)
	fd, err := unix.Openat(dir, filepath.Base(p.path), unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open the mount in the container: %w", err)
	}
	defer unix.Close(fd)
	var st unix.Statx_t
	if err := unix.Statx(fd, "", unix.AT_EMPTY_PATH|unix.AT_STATX_DONT_SYNC, unix.STATX_MNT_ID, &st); err != nil {
		return fmt.Errorf("look at the mount in the container: %w", err)
	}
	if st.Mnt_id != p.id {
		return errors.New("the path does not lead to the folder's mount")
	}
	err = unix.MountSetattr(fd, "", unix.AT_EMPTY_PATH, &unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY})
	if errors.Is(err, unix.EBUSY) {
		return errWritten
	}
	if err != nil {
		return fmt.Errorf("make the mount read-only: %w", err)
	}
	return nil
}
