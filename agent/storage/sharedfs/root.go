// Package sharedfs gives leases folders of file systems that several hosts mount: NFS, CephFS, Gluster and others,
// which the operator has mounted on the host.
//
// Below the operator's folder there is one folder that only root may enter, with a marker file that identifies the file
// system and a folder for each renting organisation. Programs on other hosts write to the same file system, so
// everything below is opened without following links and without leaving it.
//
// Any call to the file system of a server that is away may block without end, and a blocked thread cannot be ended.
// Callers go through a lane, which starts nothing while an earlier call blocks.
package sharedfs

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/agent/storage/mountns"
)

const (
	topDir     = ".muster"
	markerFile = "marker"
	orgsDir    = "folders"
	markerLen  = 26 // of rand.Text
)

// inFolder opens below a folder only: no links, no other file system, no way up.
const inFolder = unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS | unix.RESOLVE_NO_XDEV

// openDir opens a folder below another.
func openDir(dir int, path string) (int, error) {
	return unix.Openat2(dir, path, &unix.OpenHow{
		Flags: unix.O_RDONLY | unix.O_DIRECTORY | unix.O_CLOEXEC | unix.O_NOFOLLOW, Resolve: inFolder,
	})
}

// makeDir opens a folder below another, and makes it if it is missing.
func makeDir(dir int, name string, perm uint32) (int, error) {
	fd, err := openDir(dir, name)
	if !errors.Is(err, unix.ENOENT) {
		return fd, err
	}
	if err := mkdir(dir, name, perm); err != nil && !errors.Is(err, unix.EEXIST) {
		return -1, err
	}
	return openDir(dir, name)
}

// mkdir makes a folder with exactly these permissions. A chmod afterwards would be missing if the agent were killed in
// between, and would undo one of the renter's if another host has just made the folder.
func mkdir(dir int, name string, perm uint32) error {
	return mountns.OnThread(func() error {
		if err := unix.Unshare(unix.CLONE_FS); err != nil { // the umask is then the thread's alone
			return err
		}
		unix.Umask(0)
		return unix.Mkdirat(dir, name, perm)
	})
}

// errNoMount is the error of a folder at which nothing is mounted: what is written there would be on the host's own
// disk, and no other host would see it.
var errNoMount = errors.New("nothing is mounted there: mount the shared file system first")

// openRoot opens the operator's folder, which must be a mount. Its path is the operator's and may contain links.
func openRoot(path string) (int, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	var st unix.Statx_t
	if err := unix.Statx(fd, "", unix.AT_EMPTY_PATH, 0, &st); err != nil {
		unix.Close(fd)
		return -1, err
	}
	if st.Attributes_mask&unix.STATX_ATTR_MOUNT_ROOT == 0 || st.Attributes&unix.STATX_ATTR_MOUNT_ROOT == 0 {
		unix.Close(fd)
		return -1, errNoMount
	}
	return fd, nil
}

// top opens the folder for everything that Muster stores, whose owner must be root.
func top(root int) (int, error) {
	fd, err := makeDir(root, topDir, 0o700)
	if err != nil {
		return -1, fmt.Errorf("make the folder %s: %w", topDir, squashed(err))
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		unix.Close(fd)
		return -1, err
	}
	if st.Uid != 0 || st.Mode&0o077 != 0 {
		unix.Close(fd)
		return -1, fmt.Errorf("the folder %s must be root's, with mode 0700, and is user %d's with mode %04o: does the "+
			"server replace root by another user (NFS: export it with no_root_squash)?", topDir, st.Uid, st.Mode&0o7777)
	}
	return fd, nil
}

// squashed adds the usual cause to an error of permissions.
func squashed(err error) error {
	if errors.Is(err, unix.EACCES) || errors.Is(err, unix.EPERM) {
		return fmt.Errorf("%w: root may not write there (NFS: export it with no_root_squash)", err)
	}
	return err
}

var markerShape = regexp.MustCompile(`^[A-Z2-7]{26}$`)

// marker reads the marker of a file system, and makes it if there is none. Of two hosts that make it at the same time,
// one wins: it appears whole, by a link.
func marker(top int) (string, error) {
	got, err := readMarker(top)
	if !errors.Is(err, unix.ENOENT) {
		return got, err
	}
	text := rand.Text()[:markerLen]
	tmp := markerFile + "." + rand.Text()
	fd, err := unix.Openat(top, tmp, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return "", fmt.Errorf("write the marker: %w", squashed(err))
	}
	_, err = unix.Write(fd, []byte(text))
	err = errors.Join(err, unix.Fsync(fd), unix.Close(fd))
	if err == nil {
		err = unix.Linkat(top, tmp, top, markerFile, 0)
	}
	if errors.Is(err, unix.EEXIST) {
		err = nil
	}
	err = errors.Join(err, unix.Unlinkat(top, tmp, 0))
	if err != nil {
		return "", fmt.Errorf("write the marker: %w", err)
	}
	return readMarker(top)
}

func readMarker(top int) (string, error) {
	fd, err := unix.Openat2(top, markerFile, &unix.OpenHow{
		Flags: unix.O_RDONLY | unix.O_CLOEXEC | unix.O_NOFOLLOW | unix.O_NONBLOCK, Resolve: inFolder})
	if err != nil {
		return "", err
	}
	defer unix.Close(fd)
	b := make([]byte, markerLen+1)
	n, err := unix.Read(fd, b)
	if err != nil && err != io.EOF {
		return "", fmt.Errorf("read the marker: %w", err)
	}
	if got := string(b[:max(n, 0)]); markerShape.MatchString(got) {
		return got, nil
	}
	return "", fmt.Errorf("the marker %s/%s is damaged: its content must be %d letters and digits", topDir, markerFile,
		markerLen)
}

// typeName returns the kernel's name of the type of the file system that fd is on, from the list of mounts.
func typeName(fd int, mounts string) string {
	var st unix.Statx_t
	if unix.Statx(fd, "", unix.AT_EMPTY_PATH, unix.STATX_MNT_ID, &st) != nil {
		return ""
	}
	for line := range strings.Lines(mounts) {
		head, tail, ok := strings.Cut(line, " - ")
		if h := strings.Fields(head); ok && len(h) > 0 && h[0] == fmt.Sprint(st.Mnt_id) {
			kind, _, _ := strings.Cut(tail, " ")
			return kind
		}
	}
	return ""
}
