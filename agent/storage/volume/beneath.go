package volume

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// The tree of a volume belongs to its tenant, who may rename and replace anything in it at any moment. So nothing in
// this package opens a path of several parts: each name is opened below the handle of its folder, never through a
// symbolic link, and never on another file system.
const beneath = unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS | unix.RESOLVE_NO_XDEV

// openIn opens one name in a folder. flags never include O_CREAT without O_EXCL.
func openIn(dir int, name string, flags int, mode uint32) (int, error) {
	if err := checkName(name); err != nil {
		return -1, err
	}
	for {
		fd, err := unix.Openat2(dir, name, &unix.OpenHow{
			Flags:   uint64(flags | unix.O_CLOEXEC | unix.O_NOFOLLOW | unix.O_NOCTTY | unix.O_NONBLOCK),
			Mode:    uint64(mode),
			Resolve: beneath,
		})
		switch {
		case errors.Is(err, unix.EINTR), errors.Is(err, unix.EAGAIN): // EAGAIN: something was renamed meanwhile
			continue
		case err != nil:
			return -1, &fs.PathError{Op: "open", Path: name, Err: err}
		}
		return fd, nil
	}
}

// openDir opens a folder in a folder.
func openDir(dir int, name string) (int, error) {
	return openIn(dir, name, unix.O_RDONLY|unix.O_DIRECTORY, 0)
}

// checkName refuses what is no name of one entry of a folder.
func checkName(name string) error {
	if name == "" || name == "." || name == ".." || len(name) > maxName {
		return fmt.Errorf("%q is no name of a file", name)
	}
	for i := range len(name) {
		if name[i] == '/' || name[i] == 0 {
			return fmt.Errorf("%q is no name of a file", name)
		}
	}
	return nil
}

const maxName = 255

// statIn looks at one name in a folder, not through a symbolic link.
func statIn(dir int, name string) (st unix.Stat_t, err error) {
	if err := checkName(name); err != nil {
		return st, err
	}
	err = unix.Fstatat(dir, name, &st, unix.AT_SYMLINK_NOFOLLOW)
	if err != nil {
		return st, &fs.PathError{Op: "stat", Path: name, Err: err}
	}
	return st, nil
}

// namesOf lists a folder. It reads through a handle of its own: the position of dir does not move.
func namesOf(dir int) ([]string, error) {
	fd, err := unix.Openat(dir, ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("list a folder: %w", err)
	}
	f := os.NewFile(uintptr(fd), "folder")
	defer f.Close()
	names, err := f.Readdirnames(-1)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("list a folder: %w", err)
	}
	return names, nil
}

// walkTo opens the folder at a relative path, part by part.
func walkTo(dir int, parts []string) (int, error) {
	at, err := unix.FcntlInt(uintptr(dir), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	for _, p := range parts {
		next, err := openDir(at, p)
		unix.Close(at)
		if err != nil {
			return -1, err
		}
		at = next
	}
	return at, nil
}

// passed reports whether an error means that an entry was removed or replaced while it was looked at.
func passed(err error) bool {
	return errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP) ||
		errors.Is(err, unix.ESTALE) || errors.Is(err, unix.ENXIO)
}

// xattrsOf returns the attributes of a file that its users may set; the handle is of a file or a folder.
func xattrsOf(fd int) (map[string]string, error) {
	var list [16 << 10]byte
	n, err := unix.Flistxattr(fd, list[:])
	if errors.Is(err, unix.ENOTSUP) || errors.Is(err, unix.ERANGE) || n == 0 {
		return nil, nil // more names than fit are more than a manifest holds
	}
	if err != nil {
		return nil, fmt.Errorf("list attributes: %w", err)
	}
	out, size := map[string]string{}, 0
	for _, name := range split0(list[:n]) {
		if len(name) <= len("user.") || name[:len("user.")] != "user." {
			continue
		}
		value := make([]byte, maxXattr)
		n, err := unix.Fgetxattr(fd, name, value)
		if err != nil { // removed meanwhile, or larger than one may be
			continue
		}
		if size += len(name) + n; size > maxXattrs || len(out) == maxXattrCount {
			break
		}
		out[name] = string(value[:n])
	}
	if len(out) == 0 {
		return nil, nil
	}
	return out, nil
}

// Limits on the attributes of one file that a snapshot keeps, in bytes.
const (
	maxXattr      = 64 << 10
	maxXattrs     = 64 << 10
	maxXattrCount = 64
)

func split0(b []byte) (out []string) {
	for start, i := 0, 0; i < len(b); i++ {
		if b[i] == 0 {
			out = append(out, string(b[start:i]))
			start = i + 1
		}
	}
	return out
}
