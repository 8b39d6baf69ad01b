// Package scratch gives each run of a lease a file system of its own, on a disk that the host's operator names.
//
// Invariants:
//   - A scratch has its whole size from the beginning: it is allocated before it is visible, and what is written to it
//     cannot take space from anything else, nor the other way round.
//   - Data of one scratch never appears in another. Each is a new file of newly allocated blocks, which read as zeros
//     until they are written; no file is used twice.
//   - A scratch is its mount. The file has no name, the loop device is released with its last user, and the mount
//     appears in one step: an agent that is killed at any moment leaves a usable scratch, or nothing. A machine that is
//     switched off leaves nothing.
package scratch

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/fault"
)

// DataName is the folder of a scratch that the workload sees. It exists only in a mounted scratch, so Docker refuses to
// mount it otherwise, instead of using the disk below.
const DataName = "data"

// Store is an operator's folder for scratches. Its methods are safe for concurrent use.
type Store struct {
	dir   string // the operator's folder
	own   string // this agent's part of it
	limit int64  // limit in bytes; 0 = what the disk has

	making sync.Mutex  // one at a time, because free space is checked and then taken
	proven bool        // whether a scratch could be created here; guarded by making
	clones atomic.Bool // whether a volume could be created here
	disk   unix.Fsid   // the file system that dir was on at the first look; guarded by making
}

// New returns a store in dir, a folder of the operator's that others may use too. host distinguishes this agent's
// scratches from those of another agent on the machine. limitGB limits all of them together; 0 means what the disk has.
// New accesses nothing yet.
func New(dir string, limitGB int64, host string) *Store {
	return &Store{dir: dir, own: filepath.Join(dir, "muster-"+host), limit: limitGB * gb}
}

const gb = 1_000_000_000

// Path returns where a run's scratch is mounted.
func (s *Store) Path(ref agentapi.LeaseRef) string {
	return filepath.Join(s.own, fmt.Sprintf("%s-e%d", ref.Lease, ref.Epoch))
}

// Data returns the part of a mounted scratch that the workload sees.
func Data(path string) string { return filepath.Join(path, DataName) }

// Make creates an empty scratch of so many gigabytes (10⁹ bytes) for a run, unless the run has one. A fault says what
// is missing, in words for renter and operator; a retry may succeed when the space of another scratch is free again.
func (s *Store) Make(ctx context.Context, ref agentapi.LeaseRef, sizeGB int64) error {
	return s.make(ctx, s.Path(ref), plain, sizeGB*gb)
}

func (s *Store) make(ctx context.Context, path string, k kind, size int64) error {
	s.making.Lock()
	defer s.making.Unlock()
	return onHost(func() error {
		if there, err := ready(path); there {
			return nil
		} else if err != nil {
			return unusable(err)
		}
		if err := s.sound(); err != nil {
			return err
		}
		left, err := s.left()
		if err == nil && size > left && s.recover() {
			left, err = s.left()
		}
		if err != nil {
			return unusable(err)
		}
		if size > left {
			return fault.New(fault.Unavailable, "the host's scratch disk has room for %d GB, not for the %d GB that the node "+
				"asks for", max(0, left)/gb, size/gb)
		}
		if err := os.MkdirAll(path, 0o700); err != nil {
			return unusable(err)
		}
		if err := os.Chmod(s.own, 0o700); err != nil {
			return unusable(err)
		}
		return build(ctx, s.dir, k, size, func(mount int) error {
			return unix.MoveMount(mount, "", unix.AT_FDCWD, path, unix.MOVE_MOUNT_F_EMPTY_PATH)
		})
	})
}

// Ready reports whether a scratch is mounted at path.
func Ready(path string) (there bool, err error) {
	err = onHost(func() error {
		there, err = ready(path)
		return err
	})
	return there, err
}

// Release removes the scratch at path, its content, and its mount point. It is no error if there is none. While
// something still has it open, such as an operator's shell, its space stays in use, but nothing else can find it.
func Release(path string) error {
	return onHost(func() error { return release(path) })
}

func release(path string) error {
	for {
		_, there, err := mounted(path)
		if err != nil {
			return fmt.Errorf("look at a scratch: %w", err)
		}
		if !there {
			break
		}
		abandon(path) // data that was not written yet need not be
		err = unix.Unmount(path, unix.UMOUNT_NOFOLLOW)
		if errors.Is(err, unix.EBUSY) {
			err = unix.Unmount(path, unix.UMOUNT_NOFOLLOW|unix.MNT_DETACH)
		}
		if err != nil {
			return fmt.Errorf("unmount a scratch: %w", err)
		}
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) && !dead(err) {
		return fmt.Errorf("remove a scratch's folder: %w", err)
	}
	return nil
}

// dead reports whether an error comes from a disk that accepts no more writes. An empty folder that stays on such a
// disk holds no one's data, and must not prevent a lease from ending.
func dead(err error) bool {
	return errors.Is(err, unix.EROFS) || errors.Is(err, unix.EIO) || errors.Is(err, unix.ESHUTDOWN) ||
		errors.Is(err, unix.ENODEV) || errors.Is(err, unix.ENXIO)
}

// Sweep removes every scratch of this agent for which keep returns false. Call it when the agent starts, before
// anything is created, and when the agent is removed from the machine.
func (s *Store) Sweep(keep func(agentapi.LeaseRef) bool) error {
	s.making.Lock()
	defer s.making.Unlock()
	return onHost(func() error {
		paths, err := s.paths()
		var errs []error
		for _, p := range paths {
			if !keep(refOf(filepath.Base(p))) {
				errs = append(errs, release(p))
			}
		}
		if gone := os.Remove(s.own); !errors.Is(gone, fs.ErrNotExist) && !errors.Is(gone, unix.ENOTEMPTY) && !dead(gone) {
			errs = append(errs, gone)
		}
		return errors.Join(append(errs, err)...)
	})
}

// refOf is the inverse of Path's last part; it returns the zero ref for a name that this package did not give.
func refOf(name string) agentapi.LeaseRef {
	name, _, _ = strings.Cut(name, volumeMark)
	if i := strings.LastIndex(name, "-e"); i > 0 {
		if epoch, err := strconv.Atoi(name[i+2:]); err == nil {
			return agentapi.LeaseRef{Lease: name[:i], Epoch: epoch}
		}
	}
	return agentapi.LeaseRef{}
}

// paths lists the places of this agent's scratches, mounted or not.
func (s *Store) paths() ([]string, error) {
	entries, err := os.ReadDir(s.own)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var out []string
	if err != nil && dead(err) { // the disk does not answer; what is still mounted is known anyway
		lines, err := mountLines()
		for _, l := range lines {
			if filepath.Base(filepath.Dir(l.point)) == filepath.Base(s.own) {
				out = append(out, filepath.Join(s.own, filepath.Base(l.point)))
			}
		}
		return out, err
	}
	for _, e := range entries {
		if e.IsDir() {
			out = append(out, filepath.Join(s.own, e.Name()))
		}
	}
	return out, err
}

// Room is what a store can hold, in bytes.
type Room struct {
	Total int64 // capacity for all scratches together
	Taken int64 // the part that existing scratches use
}

// Room returns what the store can hold.
func (s *Store) Room() (r Room, err error) {
	s.making.Lock()
	defer s.making.Unlock()
	err = onHost(func() (err error) {
		if r.Total, err = s.capacity(); err != nil {
			return err
		}
		r.Taken, err = s.taken()
		return err
	})
	return r, err
}

// Shares reports whether the store uses the file system that path is on.
func (s *Store) Shares(path string) (same bool, err error) {
	err = onHost(func() error {
		ours, err := deviceOf(s.dir)
		if err != nil {
			return err
		}
		theirs, err := deviceOf(path)
		same = ours == theirs
		return err
	})
	return same, err
}

// Bounded reports whether the operator has limited how much all scratches may take.
func (s *Store) Bounded() bool { return s.limit > 0 }

// usable is the part of a disk that is offered, in percent: its file system needs some of it.
const usable = 95

// capacity returns what all scratches together may take: free space plus what they use, at most the operator's limit.
func (s *Store) capacity() (int64, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(s.dir, &st); err != nil {
		return 0, fmt.Errorf("free space of the scratch folder: %w", err)
	}
	taken, err := s.taken()
	if err != nil {
		return 0, err
	}
	total := (int64(st.Bavail)*st.Bsize + taken) / 100 * usable
	if s.limit > 0 {
		total = min(total, s.limit)
	}
	return total, nil
}

// left returns what a new scratch may take; it is negative if other files have filled the disk.
func (s *Store) left() (int64, error) {
	total, err := s.capacity()
	if err != nil {
		return 0, err
	}
	taken, err := s.taken()
	return total - taken, err
}

// recover makes btrfs reclaim freed space, which otherwise happens with its next commit, up to half a minute later. It
// reports whether more may be free now.
func (s *Store) recover() bool {
	var st unix.Statfs_t
	fd, err := unix.Open(s.dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return false
	}
	defer unix.Close(fd)
	return unix.Fstatfs(fd, &st) == nil && st.Type == unix.BTRFS_SUPER_MAGIC && unix.Syncfs(fd) == nil
}

// taken returns what this agent's scratches use.
func (s *Store) taken() (sum int64, err error) {
	paths, err := s.paths()
	if err != nil {
		return 0, err
	}
	for _, p := range paths {
		dev, there, err := mounted(p)
		if err != nil {
			return 0, err
		}
		if there {
			size, err := sizeOf(dev)
			if err != nil {
				return 0, err
			}
			sum += size
		}
	}
	return sum, nil
}

// errOtherDisk: a new file in the folder would be on whatever is below the disk that the operator named.
var errOtherDisk = errors.New("the folder is on another file system than when it was first looked at")

// sound returns why the disk cannot hold a scratch at all, before anything is created there: it is not the disk that it
// was, or it accepts no writes.
func (s *Store) sound() error {
	var st unix.Statfs_t
	if err := unix.Statfs(s.dir, &st); err != nil {
		return unusable(&fs.PathError{Op: "statfs", Path: s.dir, Err: err})
	}
	if s.disk == (unix.Fsid{}) {
		s.disk = st.Fsid
	}
	if st.Fsid != s.disk {
		return unusable(errOtherDisk)
	}
	lines, err := mountLines()
	if err != nil {
		return unusable(err)
	}
	dir, err := filepath.EvalSymlinks(s.dir)
	if err != nil {
		return unusable(err)
	}
	if why := below(lines, dir).condition(); why != "" || st.Flags&unix.ST_RDONLY != 0 {
		return unusable(fmt.Errorf("%w: %s is on a file system that %s", unix.EROFS, s.dir,
			cmp.Or(why, "is mounted read-only")))
	}
	return nil
}

// unusable describes an error of the disk for renter and operator.
func unusable(err error) error {
	what := "cannot be used"
	switch {
	case errors.Is(err, errOtherDisk), errors.Is(err, fs.ErrNotExist):
		what = "is not mounted"
	case errors.Is(err, unix.EROFS):
		what = "has become read-only"
	case errors.Is(err, unix.ENOSPC):
		what = "is full"
	case dead(err):
		what = "gives errors"
	}
	return fault.Wrap(err, fault.Unavailable, "the host's scratch disk %s", what)
}
