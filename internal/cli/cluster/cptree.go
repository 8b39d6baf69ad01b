package cluster

import (
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/pkg/sftp"

	"github.com/musterhq/muster/internal/fault"
)

// tree is a file system here or there.
type tree interface {
	Stat(p string) (fs.FileInfo, error)
	ReadDir(p string) ([]entry, error) // with an error, what was read before it
	MkdirAll(p string) error
	Chmod(p string, mode fs.FileMode) error
	Open(p string) (io.ReadCloser, error)
	// Create opens a file for writing. A new one can be read by its owner alone until Chmod.
	Create(p string, isNew bool) (io.WriteCloser, error)
	// Replace renames a file to the name of another one, whose owner it gets if the user may give it away.
	Replace(from, to string, old fs.FileInfo) error
	Remove(p string) error
	ReadLink(p string) (string, error)
	Real(p string) (string, error) // an absolute path without links
	Join(elem ...string) string
	Base(p string) string
}

// entry is an entry of a folder. Its info is nil if it has to be read by Stat, as for a link.
type entry struct {
	name string
	link bool
	info fs.FileInfo
}

type here struct{}

func (here) Stat(p string) (fs.FileInfo, error) { return os.Stat(p) }

func (here) ReadDir(p string) ([]entry, error) {
	all, err := os.ReadDir(p)
	out := make([]entry, len(all))
	for i, e := range all {
		out[i] = entry{name: e.Name(), link: e.Type()&fs.ModeSymlink != 0}
	}
	return out, err
}

func (here) MkdirAll(p string) error                { return os.MkdirAll(p, 0o755) }
func (here) Chmod(p string, mode fs.FileMode) error { return os.Chmod(p, mode) }
func (here) Open(p string) (io.ReadCloser, error)   { return os.Open(p) }

func (here) Create(p string, _ bool) (io.WriteCloser, error) {
	return os.OpenFile(p, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
}

func (here) Replace(from, to string, old fs.FileInfo) error {
	giveTo(from, old)
	return os.Rename(from, to)
}

func (here) Remove(p string) error             { return os.Remove(p) }
func (here) ReadLink(p string) (string, error) { return os.Readlink(p) }
func (here) Real(p string) (string, error) {
	real, err := filepath.EvalSymlinks(p)
	if err != nil {
		return "", err
	}
	return filepath.Abs(real)
}
func (here) Join(elem ...string) string { return filepath.Join(elem...) }
func (here) Base(p string) string       { return filepath.Base(filepath.Clean(p)) }

type there struct{ *sftp.Client }

func (t there) ReadDir(p string) ([]entry, error) {
	all, err := t.Client.ReadDir(p)
	out := make([]entry, len(all))
	for i, e := range all {
		if out[i] = (entry{name: e.Name(), info: e}); e.Mode()&fs.ModeSymlink != 0 {
			out[i].link, out[i].info = true, nil
		}
	}
	return out, err
}

func (t there) Open(p string) (io.ReadCloser, error) { return t.Client.Open(p) }

func (t there) Create(p string, isNew bool) (io.WriteCloser, error) {
	f, err := t.Client.Create(p)
	if err != nil {
		return nil, err
	}
	if isNew {
		_ = f.Chmod(0o600) // a file system without modes refuses it, as it then refuses the mode of the source
	}
	return f, nil
}

func (t there) Replace(from, to string, old fs.FileInfo) error {
	if s, ok := old.Sys().(*sftp.FileStat); ok {
		_ = t.Chown(from, int(s.UID), int(s.GID))
	}
	if _, ok := t.HasExtension("posix-rename@openssh.com"); !ok {
		return fault.New(fault.Unavailable, "the node's server of files cannot replace a file")
	}
	return t.PosixRename(from, to)
}

// maxLinks is how many links of a path are followed, as many as Linux does.
const maxLinks = 40

// Real follows the links of a path one by one, because the node's server of files only cleans paths.
func (t there) Real(p string) (string, error) {
	abs, err := t.RealPath(p)
	if err != nil {
		return "", err
	}
	done, rest, links := "/", strings.TrimPrefix(abs, "/"), 0
	for rest != "" {
		var name string
		name, rest, _ = strings.Cut(rest, "/")
		next := path.Join(done, name)
		to, err := t.ReadLink(next)
		if err != nil || name == ".." || name == "" {
			done = next
			continue
		}
		if links++; links > maxLinks {
			return "", fault.New(fault.Invalid, "%s: too many links", p)
		}
		if path.IsAbs(to) {
			done = "/"
		}
		rest = strings.TrimPrefix(strings.Trim(to, "/")+"/"+rest, "/")
		rest = strings.TrimSuffix(rest, "/")
	}
	return done, nil
}

func (t there) Base(p string) string { return path.Base(path.Clean(p)) }
