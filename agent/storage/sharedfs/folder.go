package sharedfs

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"

	"golang.org/x/sys/unix"
)

// folderShape is that of the ids that name folders. The platform makes them; nothing of a renter's is in them.
var folderShape = regexp.MustCompile(`^shd_[0-9a-z]{1,40}$`)

// errFolder is the error of a name that is no folder's.
var errFolder = errors.New("the name of the folder is not one that the platform makes")

// folders opens the folder that has a folder for each organisation.
func folders(top int) (int, error) { return makeDir(top, orgsDir, 0o700) }

// folder opens the folder of an organisation, and makes it if it is missing. The workload has it as its own: any of its
// users may write there. The folders above let only root pass.
func folder(top int, name string) (int, error) {
	if !folderShape.MatchString(name) {
		return -1, errFolder
	}
	all, err := folders(top)
	if err != nil {
		return -1, err
	}
	defer unix.Close(all)
	return makeDir(all, name, 0o777)
}

// maxDepth is how deep the folders are that are measured. Each level that is being read keeps a file open.
const maxDepth = 128

// errDeep is the error of a folder that is not measured.
var errDeep = fmt.Errorf("it has folders that are more than %d levels deep: they are not measured", maxDepth)

// used returns how much the files of an organisation's folder take on the disk. A file with several names counts once
// for each: to remember which were counted would let a renter fill the host's memory.
func used(ctx context.Context, top int, name string) (int64, error) {
	if !folderShape.MatchString(name) {
		return 0, errFolder
	}
	fd, err := openDir(top, orgsDir+"/"+name)
	if errors.Is(err, unix.ENOENT) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	return usedBelow(ctx, fd, 0)
}

// usedBelow closes dir.
func usedBelow(ctx context.Context, dir, depth int) (sum int64, err error) {
	f := os.NewFile(uintptr(dir), "")
	defer f.Close()
	if depth > maxDepth {
		return 0, errDeep
	}
	for {
		names, err := f.Readdirnames(512)
		if errors.Is(err, io.EOF) {
			return sum, nil
		}
		if err != nil {
			return sum, err
		}
		for _, name := range names {
			if ctx.Err() != nil {
				return sum, ctx.Err()
			}
			var st unix.Stat_t
			err := unix.Fstatat(dir, name, &st, unix.AT_SYMLINK_NOFOLLOW)
			if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ESTALE) { // removed meanwhile
				continue
			}
			if err != nil {
				return sum, err
			}
			sum += st.Blocks * 512
			if st.Mode&unix.S_IFMT != unix.S_IFDIR {
				continue
			}
			sub, err := openDir(dir, name)
			switch {
			case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ESTALE), errors.Is(err, unix.ENOTDIR),
				errors.Is(err, unix.ELOOP): // replaced meanwhile
				continue
			case err != nil:
				return sum, err
			}
			below, err := usedBelow(ctx, sub, depth+1)
			sum += below
			if err != nil {
				return sum, err
			}
		}
	}
}

// erase deletes the folder of an organisation with all that is in it. It follows no links and keeps two folders open at
// most, however deep they are: a folder in a folder is moved up before its parent is deleted.
func erase(ctx context.Context, top int, name string) error {
	if !folderShape.MatchString(name) {
		return errFolder
	}
	all, err := folders(top)
	if err != nil {
		return err
	}
	defer unix.Close(all)
	fd, err := openDir(all, name)
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	if errors.Is(err, unix.ELOOP) || errors.Is(err, unix.ENOTDIR) { // not what was made here
		return unix.Unlinkat(all, name, 0)
	}
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if err := empty(ctx, fd); err != nil {
		return err
	}
	return removeEmpty(all, name, fd)
}

// removeEmpty deletes an entry of a folder: the folder that sub is open on, which lists nothing.
func removeEmpty(dir int, name string, sub int) error {
	err := unix.Unlinkat(dir, name, unix.AT_REMOVEDIR)
	if errors.Is(err, unix.ENOTEMPTY) {
		n, bad := dropSnapshots(sub)
		if bad != nil {
			return bad
		}
		if n > 0 {
			err = unix.Unlinkat(dir, name, unix.AT_REMOVEDIR)
		}
	}
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	return err
}

// empty deletes what is in a folder.
func empty(ctx context.Context, dir int) error {
	for {
		names, err := someNames(dir)
		if err != nil || len(names) == 0 {
			return err
		}
		for _, n := range names {
			if err := ctx.Err(); err != nil {
				return err
			}
			if err := remove(ctx, dir, n); err != nil {
				return err
			}
		}
	}
}

// remove deletes an entry of a folder. What is in a folder in it is moved up, to be deleted later.
func remove(ctx context.Context, dir int, name string) error {
	err := unix.Unlinkat(dir, name, 0)
	if err == nil || errors.Is(err, unix.ENOENT) {
		return nil
	}
	if !errors.Is(err, unix.EISDIR) && !errors.Is(err, unix.EPERM) {
		return err
	}
	err = unix.Unlinkat(dir, name, unix.AT_REMOVEDIR)
	if err == nil || errors.Is(err, unix.ENOENT) {
		return nil
	}
	if !errors.Is(err, unix.ENOTEMPTY) && !errors.Is(err, unix.EEXIST) {
		return err
	}
	sub, err := openDir(dir, name)
	if err != nil {
		return err
	}
	defer unix.Close(sub)
	for {
		names, err := someNames(sub)
		if err != nil {
			return err
		}
		if len(names) == 0 {
			return removeEmpty(dir, name, sub)
		}
		for _, n := range names {
			if err := ctx.Err(); err != nil {
				return err
			}
			err := unix.Unlinkat(sub, n, 0)
			if errors.Is(err, unix.EISDIR) || errors.Is(err, unix.EPERM) {
				if err = unix.Unlinkat(sub, n, unix.AT_REMOVEDIR); err != nil {
					err = unix.Renameat(sub, n, dir, "deleted-"+rand.Text())
				}
			}
			if err != nil && !errors.Is(err, unix.ENOENT) {
				return err
			}
		}
	}
}

// someNames returns names of a folder from its beginning.
func someNames(dir int) ([]string, error) {
	fd, err := openDir(dir, ".")
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), "")
	defer f.Close()
	names, err := f.Readdirnames(512)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return names, err
}
