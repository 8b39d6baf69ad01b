package scratch

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// loopTries is how often to request a free loop device, because other programs may take it first.
const loopTries = 64

// attach attaches a loop device to a file. The device releases the file with its last user: the caller's handle, then
// the mount.
func attach(fd int) (*os.File, error) {
	control, err := os.OpenFile("/dev/loop-control", os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer control.Close()
	for try := 1; ; try++ {
		n, err := unix.IoctlRetInt(int(control.Fd()), unix.LOOP_CTL_GET_FREE)
		if err != nil {
			return nil, fmt.Errorf("ask for a loop device: %w", err)
		}
		device, err := os.OpenFile("/dev/loop"+strconv.Itoa(n), os.O_RDWR, 0)
		if err != nil {
			return nil, err
		}
		config := unix.LoopConfig{
			Fd:   uint32(fd),
			Size: 4096,
			Info: unix.LoopInfo64{Flags: unix.LO_FLAGS_AUTOCLEAR | unix.LO_FLAGS_DIRECT_IO},
		}
		copy(config.Info.File_name[:], "muster scratch")
		err = unix.IoctlLoopConfigure(int(device.Fd()), &config)
		if err == nil {
			return device, nil
		}
		device.Close()
		if !errors.Is(err, unix.EBUSY) || try == loopTries {
			return nil, fmt.Errorf("set up a loop device: %w", err)
		}
	}
}

// mountDetached mounts the file system of a device without a mount point: until it is moved to its place, the mount
// exists as the caller's handle. Set-uid programs and device files have no effect in it.
func mountDetached(k kind, device string) (int, error) {
	ctx, err := unix.Fsopen(k.fs, unix.FSOPEN_CLOEXEC)
	if err != nil {
		return -1, fmt.Errorf("%s: %w", k.fs, err)
	}
	defer unix.Close(ctx)
	if err := unix.FsconfigSetString(ctx, "source", device); err != nil {
		return -1, err
	}
	for _, flag := range k.flags {
		if err := unix.FsconfigSetFlag(ctx, flag); err != nil {
			return -1, fmt.Errorf("mount with %s: %w", flag, err)
		}
	}
	if err := unix.FsconfigCreate(ctx); err != nil {
		return -1, fmt.Errorf("mount: %w", err)
	}
	return unix.Fsmount(ctx, unix.FSMOUNT_CLOEXEC, unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV|unix.MOUNT_ATTR_NOATIME)
}

// abandon makes a scratch's file system drop what it has not written yet. If the kernel cannot do that, unmounting
// writes it.
func abandon(path string) {
	const shutdown, dropAll = 0x8004587d, 2 // FS_IOC_SHUTDOWN, FS_SHUTDOWN_FLAGS_NOLOGFLUSH
	if f, err := os.Open(path); err == nil {
		_ = unix.IoctlSetPointerInt(int(f.Fd()), shutdown, dropAll)
		f.Close()
	}
}

// mounted returns the device of what is mounted at path; there is false if nothing is.
func mounted(path string) (dev uint64, there bool, err error) {
	dev, err = deviceOf(path)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, false, nil
	}
	if err == nil {
		var parent uint64
		if parent, err = deviceOf(filepath.Dir(path)); err == nil {
			return dev, dev != parent, nil
		}
	}
	if lines, bad := mountLines(); bad == nil { // a file system that was shut down does not even report its device
		_, there = mountedAt(lines, path)
		return dev, there, nil
	}
	return 0, false, err
}

// ready reports whether a scratch is mounted at path.
func ready(path string) (bool, error) {
	if _, there, err := mounted(path); err != nil || !there {
		return false, err
	}
	_, err := os.Stat(Data(path))
	return err == nil, err
}

func deviceOf(path string) (uint64, error) {
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return 0, &fs.PathError{Op: "stat", Path: path, Err: err}
	}
	return uint64(st.Dev), nil
}

// sizeOf returns the size of a block device in bytes.
func sizeOf(dev uint64) (int64, error) {
	b, err := os.ReadFile(fmt.Sprintf("/sys/dev/block/%d:%d/size", unix.Major(dev), unix.Minor(dev)))
	if err != nil {
		return 0, err
	}
	sectors, err := strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64)
	return sectors * 512, err
}
