package cluster

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"

	"github.com/pkg/sftp"

	"github.com/musterhq/muster/internal/fault"
)

// transfer copies trees. What cannot be copied is reported, and the rest goes on.
type transfer struct {
	ctx      context.Context
	from, to tree
	report   func(error)
	copied   int // files
	failed   int // entries
}

// all copies the sources, which may be patterns, into or onto the target.
func (t *transfer) all(sources []string, target string) error {
	var found []string
	for _, s := range sources {
		matches, err := t.expand(s)
		if len(matches) == 0 && len(sources) == 1 {
			return err
		}
		if err != nil {
			if err := t.fail(err); err != nil {
				return err
			}
		}
		found = append(found, matches...)
	}
	at, err := t.to.Stat(target)
	folder := err == nil && at.IsDir()
	if len(sources)+len(found) > 2 && !folder { // several, or one that is left of several
		if err == nil {
			return fault.New(fault.Invalid, "%s is not a folder: several sources need one", target)
		}
		return fault.New(fault.NotFound, "%s not found: several sources need a folder that exists", target)
	}
	for _, s := range found {
		if err := t.one(s, target, folder); err != nil {
			if len(sources) == 1 && len(found) == 1 && t.ctx.Err() == nil {
				return err
			}
			if err := t.fail(err); err != nil {
				return err
			}
		}
	}
	if t.failed > 0 {
		return fault.New(fault.Conflict, "not copied: %d; files copied: %d", t.failed, t.copied)
	}
	return nil
}

// one copies one source. It returns an error if the source itself cannot be copied, and reports those of the entries in
// it.
func (t *transfer) one(source, target string, folder bool) error {
	info, err := t.from.Stat(source)
	if err != nil {
		return t.missing(source, err)
	}
	if folder {
		name := t.from.Base(source)
		if inside := strings.HasSuffix(source, "/."); !inside && name != "." && name != "/" && name != ".." {
			if !t.possible(name) {
				return fault.New(fault.Invalid, "the name %q is not possible here", name)
			}
			target = t.to.Join(target, name)
		}
	} else if !info.IsDir() && strings.HasSuffix(target, "/") {
		return fault.New(fault.NotFound, "%s not found", target)
	}
	if !info.IsDir() {
		return t.file(source, target, info)
	}
	real, err := t.from.Real(source)
	if err != nil {
		return missing(source, err)
	}
	return t.folder(source, target, info, []string{real})
}

// fail counts and reports what was not copied. It returns an error if nothing more can be copied.
func (t *transfer) fail(err error) error {
	if t.ctx.Err() != nil {
		return fault.New(fault.Unavailable, "interrupted; files copied: %d", t.copied)
	}
	if errors.Is(err, sftp.ErrSSHFxConnectionLost) {
		return fault.Wrap(err, fault.Unavailable, "the connection to the node was lost; files copied: %d", t.copied)
	}
	t.failed++
	t.report(err)
	return nil
}

// folder copies a folder. above are the folders on the way to it, itself included, without links.
func (t *transfer) folder(source, target string, info fs.FileInfo, above []string) error {
	if err := t.to.MkdirAll(target); err != nil {
		return missing(target, err)
	}
	entries, err := t.from.ReadDir(source)
	if err != nil {
		if err := t.fail(missing(source, err)); err != nil {
			return err
		}
	}
	for _, e := range entries {
		if err := t.entry(source, target, e, above); err != nil {
			if err := t.fail(err); err != nil {
				return err
			}
		}
	}
	return missing(target, t.to.Chmod(target, info.Mode().Perm()))
}

// maxDepth bounds the way down for a node that lists folders without end.
const maxDepth = 1000

// possible reports whether a name that a host sends is the name of an entry, and not a way out of the target: on
// Windows, ..\x is one.
func (t *transfer) possible(name string) bool {
	return name != "" && name != "." && name != ".." && !strings.ContainsAny(name, "/\x00") && t.to.Base(name) == name
}

func (t *transfer) entry(source, target string, e entry, above []string) error {
	if !t.possible(e.name) {
		return fault.New(fault.Invalid, "%s: an entry has the impossible name %q", source, e.name)
	}
	child, info := t.from.Join(source, e.name), e.info
	if info == nil { // through links, as scp -r does
		var err error
		if info, err = t.from.Stat(child); err != nil {
			return t.missing(child, err)
		}
	}
	target = t.to.Join(target, e.name)
	if !info.IsDir() {
		return t.file(child, target, info)
	}
	real := t.from.Join(above[len(above)-1], e.name)
	if e.link {
		var err error
		if real, err = t.from.Real(child); err != nil {
			return missing(child, err)
		}
		if slices.Contains(above, real) {
			return fault.New(fault.Invalid, "%s is a link to a folder that contains it", child)
		}
	}
	if len(above) > maxDepth {
		return fault.New(fault.Invalid, "%s lies too deep", child)
	}
	return t.folder(child, target, info, append(slices.Clip(above), real))
}

func (t *transfer) file(source, target string, info fs.FileInfo) error {
	if !info.Mode().IsRegular() {
		return fault.New(fault.Invalid, "%s is a %s, neither a file nor a folder", source, kindName(info.Mode()))
	}
	var err error
	if old, serr := t.to.Stat(target); serr == nil && old.Mode().IsRegular() {
		err = t.replace(source, target, info, old)
	} else {
		_, err = t.write(source, target, info, serr != nil)
	}
	if err == nil {
		t.copied++
	}
	return err
}

// replace writes to a new file, which then takes the place of the old one, or of what a link to it leads to. Where the
// folder does not allow that, it writes into the old file.
func (t *transfer) replace(source, target string, info, old fs.FileInfo) error {
	at, err := t.to.Real(target)
	if err != nil {
		at = target
	}
	beside := t.to.Join(at, "..", ".muster-cp-"+strings.ToLower(rand.Text()[:10]))
	whole, err := t.write(source, beside, info, true)
	if !whole {
		if _, serr := t.to.Stat(beside); serr != nil && errors.Is(err, fs.ErrPermission) {
			_, err = t.write(source, target, info, false)
			return err
		}
		return strip(err, beside, target)
	}
	if rerr := t.to.Replace(beside, at, old); rerr != nil {
		_ = t.to.Remove(beside)
		_, err = t.write(source, target, info, false) // such as a file that is mounted
		return err
	}
	return strip(err, beside, target)
}

// write copies one file. whole reports whether its content was copied; with an error, its mode was not. A new target
// that is not whole is removed.
func (t *transfer) write(source, target string, info fs.FileInfo, isNew bool) (whole bool, err error) {
	in, err := t.from.Open(source)
	if err != nil {
		return false, missing(source, err)
	}
	defer in.Close()
	out, err := t.to.Create(target, isNew)
	if err != nil {
		return false, missing(target, err)
	}
	err = t.pour(out, in, info.Size())
	if err = errors.Join(err, out.Close()); err != nil {
		if isNew {
			_ = t.to.Remove(target)
		}
		return false, fault.Wrap(err, fault.Unavailable, "%s was not copied whole: %s", source, err)
	}
	return true, missing(target, t.to.Chmod(target, info.Mode().Perm()))
}

// pour copies until the end or until ctx ends. A file there does this by many requests at the same time, so that the
// file here is the side that ctx ends.
func (t *transfer) pour(out io.Writer, in io.Reader, size int64) error {
	var err error
	switch far := in.(type) {
	case *sftp.File:
		_, err = far.WriteTo(untilDone{t.ctx, nil, out})
	default:
		_, err = io.Copy(out, sized{untilDone{t.ctx, in, nil}, size})
	}
	return err
}

// untilDone fails once ctx has ended.
type untilDone struct {
	ctx context.Context
	r   io.Reader
	w   io.Writer
}

func (u untilDone) Read(b []byte) (int, error) {
	if err := u.ctx.Err(); err != nil {
		return 0, err
	}
	return u.r.Read(b)
}

func (u untilDone) Write(b []byte) (int, error) {
	if err := u.ctx.Err(); err != nil {
		return 0, err
	}
	return u.w.Write(b)
}

// sized is a reader of a file, whose size decides how many requests write it.
type sized struct {
	io.Reader
	size int64
}

func (s sized) Size() int64 { return s.size }

// missing is the error of a path that cannot be read, and names the target of a dead link.
func (t *transfer) missing(p string, err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		if to, lerr := t.from.ReadLink(p); lerr == nil {
			return fault.New(fault.NotFound, "%s is a link to %s, which is not found", p, to)
		}
	}
	return missing(p, err)
}

// missing says of which path an error is.
func missing(p string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, fs.ErrNotExist):
		return fault.Wrap(err, fault.NotFound, "%s not found", p)
	case errors.Is(err, fs.ErrPermission):
		return fault.Wrap(err, fault.Forbidden, "%s: permission denied", p)
	}
	return fmt.Errorf("%s: %w", p, err)
}

// strip replaces the name of a temporary file in an error by that of the target.
func strip(err error, beside, target string) error {
	if f := fault.From(err); f != nil {
		f.Message = strings.ReplaceAll(f.Message, beside, target)
	} else if err != nil {
		return fault.Wrap(err, fault.Unavailable, "%s", strings.ReplaceAll(err.Error(), beside, target))
	}
	return err
}

func kindName(m fs.FileMode) string {
	switch {
	case m&fs.ModeNamedPipe != 0:
		return "FIFO"
	case m&fs.ModeSocket != 0:
		return "socket"
	case m&fs.ModeDevice != 0:
		return "device"
	}
	return "special file"
}
