package scratch

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/fault"
)

// ProblemUnusable is the code of a problem that prevents a host from offering scratch, and nothing else.
const ProblemUnusable = "scratch_not_usable"

// Check returns what prevents scratches from being created here, or nil. It creates a small one, without a mount point,
// and releases it.
func (s *Store) Check(ctx context.Context) *agentapi.Problem {
	s.making.Lock()
	defer s.making.Unlock()
	bad := func(evidence error, fix string) *agentapi.Problem {
		return &agentapi.Problem{
			Code:     ProblemUnusable,
			Severity: "warn",
			Cause:    "A scratch folder is named, but no scratch can be made in it: none is offered.",
			Evidence: strings.TrimPrefix(evidence.Error(), string(fault.Unavailable)+": "),
			Fix:      fix,
		}
	}
	if !filepath.IsAbs(s.dir) {
		return bad(fmt.Errorf("%s is not an absolute path", s.dir), "Name the folder from / on: --scratch-dir /mnt/nvme.")
	}
	var st unix.Statfs_t
	if err := onHost(func() error { return unix.Statfs(s.dir, &st) }); err != nil {
		return bad(fmt.Errorf("%s: %w", s.dir, err), "Make the folder on the disk that is for scratch, and see that the "+
			"disk is mounted.")
	}
	switch st.Type {
	case unix.EXT4_SUPER_MAGIC, unix.XFS_SUPER_MAGIC, unix.BTRFS_SUPER_MAGIC:
	default:
		return bad(fmt.Errorf("%s is on a file system of type %#x", s.dir, st.Type),
			"Room must be reserved for good: put the folder on ext4, XFS or btrfs.")
	}
	if err := onHost(s.sound); errors.Is(err, errOtherDisk) {
		return bad(err, "Mount the disk there again. If the folder is to be on this one, restart the agent.")
	} else if err != nil {
		return bad(err, "Look in the kernel's log (dmesg) for the disk's errors, fix the disk, and mount it for writing.")
	}
	if _, err := exec.LookPath(program(plain.mkfs)); err != nil {
		return bad(err, "Install e2fsprogs (apt install e2fsprogs).")
	}
	if s.proven {
		return nil
	}
	err := onHost(func() error { return build(ctx, s.dir, plain, probeSize, func(int) error { return nil }) })
	switch {
	case err == nil:
		s.proven = true
		return nil
	case errors.Is(err, unix.EPERM), errors.Is(err, unix.EACCES):
		return bad(err, "Run it as root; in a container it needs CAP_SYS_ADMIN and the machine's /dev.")
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENODEV), errors.Is(err, unix.ENXIO):
		return bad(err, "Load the kernel's modules: modprobe loop, modprobe ext4.")
	case errors.Is(err, unix.ENOTTY), errors.Is(err, unix.EINVAL), errors.Is(err, unix.ENOSYS):
		return bad(err, "Run a kernel of version 5.8 or newer.")
	case errors.Is(err, unix.ENOSPC):
		return bad(err, "Make room on the disk.")
	}
	return bad(err, "Look into the kernel's log (dmesg) for what it says of the disk.")
}

const probeSize = 8 << 20
