package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/rclone/rclone/lib/ranges"
	"github.com/rclone/rclone/vfs/vfscache"
	"golang.org/x/sys/unix"
)

// repair replaces the metadata of cached files that a kill has cut off, and returns the number of files. rclone
// overwrites a file's metadata in place, for instance when the file is closed, and deletes a file whose metadata it
// cannot read: what was written and closed would be lost. A repaired file is uploaded, once more if it was already. A
// file with holes stays as it is: parts of it may never have been read from the store.
func repair(cache string) (n int, err error) {
	root := filepath.Join(cache, "vfsMeta")
	err = filepath.WalkDir(root, func(meta string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // nothing was cached yet
		}
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		b, err := os.ReadFile(meta)
		if err != nil || json.Unmarshal(b, new(vfscache.Info)) == nil {
			return err
		}
		rel, err := filepath.Rel(root, meta)
		if err != nil {
			return err
		}
		info, err := infoOf(filepath.Join(cache, "vfs", rel))
		if err != nil || info == nil {
			return err
		}
		if b, err = json.Marshal(info); err != nil {
			return err
		}
		part := filepath.Join(cache, "repaired")
		if err := os.WriteFile(part, b, 0o600); err != nil {
			return err
		}
		n++
		return os.Rename(part, meta)
	})
	if err != nil {
		err = fmt.Errorf("repair the cache: %w", err)
	}
	return n, err
}

// infoOf returns the metadata of a cached file that is to be uploaded whole; nil if there is none, or it has holes.
func infoOf(file string) (*vfscache.Info, error) {
	f, err := os.Open(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return nil, err
	}
	info := &vfscache.Info{ModTime: st.ModTime(), ATime: time.Now(), Size: st.Size(), Dirty: true}
	if st.Size() == 0 {
		return info, nil
	}
	if hole, err := f.Seek(0, unix.SEEK_HOLE); err != nil || hole < st.Size() {
		return nil, err
	}
	info.Rs.Insert(ranges.Range{Size: st.Size()})
	return info, nil
}
