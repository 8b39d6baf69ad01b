package scratch

import (
	"os/exec"
	"path/filepath"
)

// A kind is a file system that this package makes.
type kind struct {
	fs   string // the kernel's name of it
	mkfs string
	// args are command lines of mkfs, tried in order: a release of mkfs that does not know an option refuses the line.
	args  [][]string
	flags []string // options of the mount
}

// plain is what nodes get as their scratch. No journal, since nothing reads the file system after a crash; no reserve
// for root; an inode for every 64 KiB; and no discard of the blocks that were just allocated. Its inode tables
// already read as zeros, so they need not be zeroed.
var plain = kind{
	fs: "ext4", mkfs: "mkfs.ext4",
	args: [][]string{{"-q", "-F", "-b", "4096", "-m", "0", "-i", "65536", "-e", "remount-ro", "-E",
		"nodiscard,lazy_itable_init=1", "-O", "^has_journal"}},
	flags: []string{"noinit_itable"},
}

// cloning is what volumes get: XFS, because it clones a file in a fraction of a millisecond. The features are named,
// so that a newer mkfs makes nothing that an older kernel cannot mount. Releases of mkfs before 5.19 do not know
// nrext64.
var cloning = kind{
	fs: "xfs", mkfs: "mkfs.xfs",
	args: [][]string{
		append([]string{"-q", "-f", "-K", "-i", "maxpct=50,nrext64=0"}, cloningFeatures...),
		append([]string{"-q", "-f", "-K", "-i", "maxpct=50"}, cloningFeatures...),
	},
	flags: []string{"noquota"},
}

// The sectors are those of attach.
var cloningFeatures = []string{"-m", "crc=1,finobt=1,reflink=1,bigtime=1,rmapbt=0", "-s", "size=4096"}

// program returns the path of an administrator's command, which is not on every PATH that has it installed.
func program(name string) string {
	if path, err := exec.LookPath(name); err == nil {
		return path
	}
	for _, dir := range []string{"/usr/sbin", "/sbin"} {
		if path, err := exec.LookPath(filepath.Join(dir, name)); err == nil {
			return path
		}
	}
	return name
}
