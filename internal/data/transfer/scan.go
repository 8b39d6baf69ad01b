package transfer

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/musterhq/muster/internal/data/manifest"
)

// A local is a file, a folder or a link of this machine.
type local struct {
	path string // of the operating system
	e    manifest.Entry
	kids []*local // of a folder, in the order of their names
}

// A scan is what an upload found on this machine.
type scan struct {
	root           *local
	bytes, files   int64
	leftOut, count int64
}

// maxEntries is how many files a volume may have.
const maxEntries = 2 << 20

// look walks a tree. Links are not followed, except the path itself: that may be one.
func look(path string) (*scan, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	s := &scan{}
	s.root, err = s.entry(path, info, 0)
	if err == nil && s.root == nil {
		err = fmt.Errorf("%s is neither a file nor a folder", path)
	}
	return s, err
}

func (s *scan) entry(path string, info fs.FileInfo, depth int) (*local, error) {
	if s.count++; s.count > maxEntries {
		return nil, fmt.Errorf("%s: there are more than %d files", path, maxEntries)
	}
	l := &local{path: path, e: manifest.Entry{
		Name: info.Name(), Mode: uint32(info.Mode().Perm()), MTime: info.ModTime().UnixNano(),
	}}
	if info.Mode()&fs.ModeSticky != 0 {
		l.e.Mode |= 0o1000
	}
	switch {
	case info.IsDir():
		l.e.Kind = manifest.Dir
		return l, s.folder(l, depth)
	case info.Mode().IsRegular():
		l.e.Kind, l.e.Size = manifest.File, info.Size()
		s.files++
		s.bytes += info.Size()
	case info.Mode()&fs.ModeSymlink != 0:
		target, err := os.Readlink(path)
		if err != nil {
			return nil, err
		}
		if target == "" || len(target) > manifest.MaxTarget {
			return nil, fmt.Errorf("%s: the target of the link is longer than a volume takes", path)
		}
		l.e.Kind, l.e.Target, l.e.Mode = manifest.Symlink, filepath.ToSlash(target), 0o777
		s.files++
	default: // a device, a socket, a FIFO
		s.leftOut++
		return nil, nil
	}
	return l, nil
}

func (s *scan) folder(l *local, depth int) error {
	if depth >= manifest.MaxDepth/2 {
		return fmt.Errorf("%s lies too deep", l.path)
	}
	kids, err := os.ReadDir(l.path)
	if err != nil {
		return err
	}
	for _, k := range kids {
		at := filepath.Join(l.path, k.Name())
		info, err := k.Info()
		if errors.Is(err, fs.ErrNotExist) { // removed meanwhile
			continue
		}
		if err != nil {
			return err
		}
		kid, err := s.entry(at, info, depth+1)
		if err != nil {
			return err
		}
		if kid != nil {
			l.kids = append(l.kids, kid)
		}
	}
	return nil
}
