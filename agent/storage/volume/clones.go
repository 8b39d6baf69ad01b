package volume

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// clones is the folder of clones of a volume: files named by numbers that are used once.
type clones struct {
	dir  *os.File
	next uint64
}

// openClones opens the folder, and removes what keep does not name: clones of a cut that was interrupted.
func openClones(cut int, keep map[uint64]bool) (*clones, error) {
	if err := unix.Mkdirat(cut, clonesName, 0o700); err != nil && !errors.Is(err, unix.EEXIST) {
		return nil, fmt.Errorf("make the folder of clones: %w", err)
	}
	fd, err := openDir(cut, clonesName)
	if err != nil {
		return nil, err
	}
	c := &clones{dir: os.NewFile(uintptr(fd), clonesName), next: 1}
	names, err := namesOf(fd)
	if err != nil {
		c.dir.Close()
		return nil, err
	}
	for _, name := range names {
		n, err := strconv.ParseUint(name, 10, 64)
		if err == nil {
			c.next = max(c.next, n+1)
		}
		if err != nil || !keep[n] {
			if err := unix.Unlinkat(fd, name, 0); err != nil {
				c.dir.Close()
				return nil, fmt.Errorf("remove a clone: %w", err)
			}
		}
	}
	return c, nil
}

// take clones an open file and returns the clone's number.
func (c *clones) take(src int) (uint64, error) {
	n := c.next
	c.next++
	name := strconv.FormatUint(n, 10)
	dst, err := openIn(int(c.dir.Fd()), name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL, 0o600)
	if err != nil {
		return 0, err
	}
	defer unix.Close(dst)
	if err := unix.IoctlFileClone(dst, src); err != nil {
		return 0, errors.Join(fmt.Errorf("clone a file: %w", err), unix.Unlinkat(int(c.dir.Fd()), name, 0))
	}
	return n, nil
}

// open opens a clone for reading.
func (c *clones) open(n uint64) (*os.File, error) {
	fd, err := openIn(int(c.dir.Fd()), strconv.FormatUint(n, 10), unix.O_RDONLY, 0)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), "clone"), nil
}

// drop removes a clone; it is no error if there is none.
func (c *clones) drop(n uint64) error {
	err := unix.Unlinkat(int(c.dir.Fd()), strconv.FormatUint(n, 10), 0)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove a clone: %w", err)
	}
	return nil
}

// dropExcept removes every clone that no tree uses.
func (c *clones) dropExcept(trees ...*tree) error {
	keep := map[uint64]bool{}
	for _, t := range trees {
		for n := range t.clones() {
			keep[n] = true
		}
	}
	names, err := namesOf(int(c.dir.Fd()))
	errs := []error{err}
	for _, name := range names {
		if n, err := strconv.ParseUint(name, 10, 64); err == nil && !keep[n] {
			errs = append(errs, c.drop(n))
		}
	}
	return errors.Join(errs...)
}
