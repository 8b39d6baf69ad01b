//go:build !windows

package cluster

import (
	"io/fs"
	"os"
	"syscall"
)

// giveTo gives a file the owner of another one, if the user may.
func giveTo(p string, old fs.FileInfo) {
	if s, ok := old.Sys().(*syscall.Stat_t); ok {
		_ = os.Lchown(p, int(s.Uid), int(s.Gid))
	}
}
