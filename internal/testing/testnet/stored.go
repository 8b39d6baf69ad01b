package testnet

import (
	"errors"
	"io/fs"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// Stored returns how many bytes the files below dir take on the disk, without logs (*.log). Files may come and go
// meanwhile, as they do in an engine's folder.
func Stored(dir string) (sum int64, err error) {
	err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		var st unix.Stat_t
		if err == nil && !d.IsDir() && !strings.HasSuffix(path, ".log") {
			if err = unix.Lstat(path, &st); err == nil {
				sum += st.Blocks * 512
			}
		}
		if errors.Is(err, fs.ErrNotExist) {
			return nil // it was just removed
		}
		return err
	})
	return sum, err
}
