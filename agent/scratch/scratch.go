// Package scratch gives each run of a lease a file system of its own, on a disk that the host's operator names.
//
// What always holds:
//   - A scratch has its whole size from the beginning: it is allocated before it is shown, and nothing that is written
//     to it can take room from anything else, nor anything else from it.
//   - Nothing of one scratch is ever in another. Each is a new file of newly allocated blocks, which read as zeros
//     until they are written; none is used twice.
//   - A scratch is its mount. The file has no name, the loop device is let go with its last user, and the mount appears
//     whole, in one step: an agent that is killed at any moment leaves a scratch that can be used, or nothing. A
//     machine that is switched off leaves nothing.
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

	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/fault"
)

// dataName is the folder of a scratch that the workload sees: it is nowhere but in a mounted one, so Docker refuses to
// mount what is not there instead of taking the disk below.
const dataName = "data"

// Store is an operator's folder for scratches. Its methods may be called at once from several goroutines.
type Store struct {
	dir   string // the operator's
	own   string // this agent's part of it
	limit int64  // bytes; 0 = what the disk has

	making sync.Mutex // one at a time: what is free is looked at and then taken
	proven bool       // a scratch could be made here; guarded by making
	disk   unix.Fsid  // the file system that dir was on when it was first looked at; guarded by making
}

// New is a store in dir, a folder of the operator's that others may use too. host tells this agent's scratches from
// those of another on the machine. limitGB bounds all of them together, 0 for what the disk has. It looks at nothing
// yet.
func New(dir string, limitGB int64, host string) *Store {
	return &Store{dir: dir, own: filepath.Join(dir, "muster-"+host), limit: limitGB * gb}
}

const gb = 1_000_000_000

// Path is where a run's scratch is mounted.
func (s *Store) Path(ref agentapi.LeaseRef) string {
	return filepath.Join(s.own, fmt.Sprintf("%s-e%d", ref.Lease, ref.Epoch))
}

// Data is the part of a mounted scratch that the workload sees.
func Data(path string) string { return filepath.Join(path, dataName) }

// Make gives a run its scratch of so many gigabytes (10⁹ bytes), empty, unless it has it already. A fault says what is
// missing in words for renter and operator; it may work a moment later, when another's room is free again.
func (s *Store) Make(ctx context.Context, ref agentapi.LeaseRef, sizeGB int64) error {
	return s.make(ctx, s.Path(ref), sizeGB*gb)
}

func (s *Store) make(ctx context.Context, path string, size int64) error {
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
		return build(ctx, s.dir, size, func(mount int) error {
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

// Release takes away the scratch at path, with all that is in it, and its place. One that is not there is no error. Who
// still has it open, such as an operator's shell, keeps its room on the disk until he lets go; nobody finds it any
// more.
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
		abandon(path) // what was not written yet need not be
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

// dead reports whether an error is a disk's that takes nothing any more. An empty folder that is left on such a disk
// has nothing of anybody's, and must keep no lease from ending.
func dead(err error) bool {
	return errors.Is(err, unix.EROFS) || errors.Is(err, unix.EIO) || errors.Is(err, unix.ESHUTDOWN) ||
		errors.Is(err, unix.ENODEV) || errors.Is(err, unix.ENXIO)
}

// Sweep takes away every scratch of this agent's for which keep says no. It is for the agent's start, before anything
// is made, and for when the agent is taken off the machine.
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

// refOf is the inverse of Path's last part; the zero ref for what we did not name.
func refOf(name string) agentapi.LeaseRef {
	if i := strings.LastIndex(name, "-e"); i > 0 {
		if epoch, err := strconv.Atoi(name[i+2:]); err == nil {
			return agentapi.LeaseRef{Lease: name[:i], Epoch: epoch}
		}
	}
	return agentapi.LeaseRef{}
}

// paths are the places of this agent's scratches, mounted or not.
func (s *Store) paths() ([]string, error) {
	entries, err := os.ReadDir(s.own)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var out []string
	if err != nil && dead(err) { // its disk cannot say; what is still mounted is known all the same
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
	Total int64 // for all scratches together
	Taken int64 // of it by those that there are
}

// Room says what the store can hold.
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

// Shares reports whether the store takes its room from the file system that path is on.
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

// Bounded reports whether the operator has said how much all scratches may take.
func (s *Store) Bounded() bool { return s.limit > 0 }

// usable is the part of a disk that is let, in percent: its file system needs some for itself.
const usable = 95

// capacity is what all scratches together may take: what is free and what they have, at most the operator's bound.
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

// left is what a new scratch may take; less than nothing where others have filled the disk.
func (s *Store) left() (int64, error) {
	total, err := s.capacity()
	if err != nil {
		return 0, err
	}
	taken, err := s.taken()
	return total - taken, err
}

// recover has btrfs give back what was freed: it does so with its next commit, which may be half a minute away. It
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

// taken is what this agent's scratches have.
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

// errOtherDisk: what is made in the folder now would lie on whatever is below the disk that the operator named.
var errOtherDisk = errors.New("the folder is on another file system than when it was first looked at")

// sound says why the disk cannot take a scratch at all, before anything is made there: it is not the one it was, or
// takes nothing.
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

// unusable puts an error of the disk in words for renter and operator.
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
