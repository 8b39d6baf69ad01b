package fusemount

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/agent/storage/mountns"
)

// fuseType is the type of the mounts of muster-mount.
const fuseType = "fuse.muster"

// mountLine is a line of the kernel's list of mounts, proc_pid_mountinfo(5).
type mountLine struct {
	id     int
	device string // major:minor
	point  string
	kind   string
	source string
}

var unescape = strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)

func parseMounts(text string) (out []mountLine) {
	for line := range strings.Lines(text) {
		head, tail, ok := strings.Cut(line, " - ")
		h, t := strings.Fields(head), strings.Fields(tail)
		if !ok || len(h) < 6 || len(t) < 2 {
			continue
		}
		id, err := strconv.Atoi(h[0])
		if err != nil {
			continue
		}
		out = append(out, mountLine{id: id, device: h[2], point: unescape.Replace(h[4]), kind: t[0],
			source: unescape.Replace(t[1])})
	}
	return out
}

// ownMounts returns the mounts of source in the mount namespace of a process. Only the host can have made them.
func ownMounts(process, source string) (own []mountLine, err error) {
	b, err := os.ReadFile(filepath.Join("/proc", process, "mountinfo"))
	if err != nil {
		return nil, err
	}
	for _, l := range parseMounts(string(b)) {
		if l.kind == fuseType && l.source == source {
			own = append(own, l)
		}
	}
	return own, nil
}

// errElsewhere is the error of a path at which something else is mounted than the list of mounts says.
var errElsewhere = errors.New("the path does not lead to the mount")

// errEnded is the error of a container whose first process has ended.
var errEnded = errors.New("the workload has ended")

// replacement is a mount in a container, to be replaced by the present one of the host.
type replacement struct {
	pid    int
	source string
	point  string // on the host
	device string // of the present mount
	folder folder
}

// do replaces what the container has of former mounts. It leaves the container as it is if it has the present one. The
// path of the mount is the kernel's: the workload may have renamed folders above it, but not put links there.
func (r *replacement) do() error {
	if err := mountns.OnThread(r.onThread); err != nil {
		return err
	}
	return r.folder.forgetLeft()
}

func (r *replacement) onThread() error {
	own, err := ownMounts(strconv.Itoa(r.pid), r.source)
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, unix.EINVAL), errors.Is(err, unix.ESRCH):
		return errEnded
	case err != nil:
		return fmt.Errorf("list the container's mounts: %w", err)
	}
	var old []mountLine
	present := false
	for _, l := range own {
		if l.device == r.device {
			present = true
			continue
		}
		old = append(old, l)
	}
	if present && len(old) == 0 {
		return nil
	}
	left, err := r.folder.left(r.pid)
	if err != nil {
		return err
	}
	if len(old) == 0 && left == "" {
		return errors.New("the container has no such mount")
	}
	if len(old) > 0 { // nothing in the container says afterwards where it was
		left = old[len(old)-1].point
		if err := r.folder.saveLeft(r.pid, left); err != nil {
			return err
		}
	}
	reached("about to take away")
	info, err := os.Open("/proc/thread-self/fdinfo")
	if err != nil {
		return err
	}
	defer info.Close()
	tree, err := r.enter()
	if err != nil {
		return err
	}
	defer unix.Close(tree)
	for _, l := range old {
		if err := r.takeAway(l, int(info.Fd())); err != nil {
			return err
		}
	}
	if !present {
		if err := r.put(tree, left); err != nil {
			return err
		}
	}
	reached("put")
	return nil
}

// enter clones the host's mount and enters the container's mount namespace.
func (r *replacement) enter() (tree int, err error) {
	ns, err := mountns.Open(r.pid)
	if err != nil {
		return -1, err
	}
	defer ns.Close()
	err = onHost(func() error {
		tree, err = unix.OpenTree(unix.AT_FDCWD, r.point, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
		return err
	})
	if err != nil {
		return -1, fmt.Errorf("clone the mount: %w", err)
	}
	private := unix.MountAttr{Propagation: unix.MS_PRIVATE}
	if err := unix.MountSetattr(tree, "", unix.AT_EMPTY_PATH, &private); err != nil {
		unix.Close(tree)
		return -1, fmt.Errorf("make the mount private: %w", err)
	}
	if err := mountns.Enter(ns); err != nil {
		unix.Close(tree)
		return -1, err
	}
	return tree, nil
}

// takeAway unmounts an own mount in the container. As long as it is mounted, the workload cannot rename its mount point
// or put anything else there.
func (r *replacement) takeAway(l mountLine, info int) error {
	parent, err := mountns.OpenParent(l.point)
	if err != nil {
		return err
	}
	defer unix.Close(parent)
	base := filepath.Base(l.point)
	fd, err := unix.Openat(parent, base, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("look at the mount in the container: %w", err)
	}
	id, err := mountOf(info, fd)
	unix.Close(fd)
	if err != nil {
		return err
	}
	if id != l.id {
		return errElsewhere
	}
	if err := unix.Fchdir(parent); err != nil {
		return err
	}
	if err := unix.Unmount(base, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW); err != nil {
		return fmt.Errorf("unmount in the container: %w", err)
	}
	reached("taken away")
	return unix.Chdir("/")
}

// put mounts tree where a mount was taken away. A link that was put there meanwhile is not followed.
func (r *replacement) put(tree int, at string) error {
	parent, err := mountns.OpenParent(at)
	if err != nil {
		return err
	}
	defer unix.Close(parent)
	err = unix.MoveMount(tree, "", parent, filepath.Base(at), unix.MOVE_MOUNT_F_EMPTY_PATH)
	if err != nil {
		return fmt.Errorf("mount in the container: %w", err)
	}
	return nil
}

// mountOf returns the id of the mount on which an open file is. It reads /proc, for which the kernel does not call the
// file system: that of a dead mount does not answer.
func mountOf(info, fd int) (int, error) {
	f, err := unix.Openat(info, strconv.Itoa(fd), unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0, fmt.Errorf("look up a mount: %w", err)
	}
	defer unix.Close(f)
	b := make([]byte, 4096)
	n, err := unix.Read(f, b)
	if err != nil {
		return 0, fmt.Errorf("look up a mount: %w", err)
	}
	for s := bufio.NewScanner(bytes.NewReader(b[:n])); s.Scan(); {
		if id, ok := strings.CutPrefix(s.Text(), "mnt_id:"); ok {
			return strconv.Atoi(strings.TrimSpace(id))
		}
	}
	return 0, errors.New("the kernel does not say on which mount a file is")
}
