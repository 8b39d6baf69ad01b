package barrier

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"syscall"
	"unsafe"

	"github.com/musterhq/muster/agent/machine/gpucheck"
)

// deviceError is a device of the node's GPUs that this container does not have.
type deviceError struct {
	path string
	err  error
}

func (e deviceError) Error() string {
	return fmt.Sprintf("the node's GPUs are not in its container: %s: %v", e.path, e.err)
}

var errNoDevice = errors.New("it is not a character device")

// CheckDevices opens device nodes as the init of a workload does, and returns what that proves.
func CheckDevices(paths []string) gpucheck.Result {
	if err := openDevices(paths); err != nil {
		return gpucheck.Result{Failure: &gpucheck.Failure{Kind: gpucheck.KindMissing, Text: err.Error()}}
	}
	return gpucheck.Result{Opened: paths}
}

// openDevices opens each device node, as the first CUDA call does: that proves that the node exists, that the container
// may use it, and that the driver answers. KFD is asked for its version; other devices are sent no requests.
func openDevices(paths []string) error {
	for _, path := range paths {
		fd, err := syscall.Open(path, syscall.O_RDWR|syscall.O_CLOEXEC|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
		if err != nil {
			return deviceError{path, err}
		}
		var st syscall.Stat_t
		err = syscall.Fstat(fd, &st)
		if err == nil && filepath.Base(path) == "kfd" {
			err = kfdAnswers(fd)
		}
		syscall.Close(fd)
		switch {
		case err != nil:
			return deviceError{path, err}
		case st.Mode&syscall.S_IFMT != syscall.S_IFCHR:
			return deviceError{path, errNoDevice}
		}
	}
	return nil
}

// kfdGetVersion is AMDKFD_IOC_GET_VERSION, _IOR('K', 0x01, struct kfd_ioctl_get_version_args), and kfdMajor the major
// version of the interface (include/uapi/linux/kfd_ioctl.h).
const (
	kfdGetVersion = 2<<30 | 8<<16 | 'K'<<8 | 1
	kfdMajor      = 1
)

// kfdAnswers asks the compute part of AMD's driver for its version, the first request of every program that uses it.
func kfdAnswers(fd int) error {
	var version struct{ major, minor uint32 }
	if _, _, errno := syscall.Syscall(syscall.SYS_IOCTL, uintptr(fd), kfdGetVersion,
		uintptr(unsafe.Pointer(&version))); errno != 0 {
		return fmt.Errorf("KFD's version: %w", errno)
	}
	if version.major != kfdMajor {
		return fmt.Errorf("KFD's version is %d.%d, want %d", version.major, version.minor, kfdMajor)
	}
	return nil
}

// errNoCheck means that the check of the GPUs could not run.
var errNoCheck = errors.New("the node's GPUs could not be checked")

// checkGPUs lets the node's GPUs compute, here, with what this container has of them. A check that the kernel kills
// because the node's memory is small is the renter's own limit, and no reason not to start.
func (i Init) checkGPUs() error {
	if i.GPUs == nil {
		return nil
	}
	res, err := i.GPUs.Run(context.Background())
	switch {
	case errors.Is(err, gpucheck.ErrKilled):
		fmt.Fprintln(i.Stderr, "muster:", err)
		return nil
	case err != nil:
		return fmt.Errorf("%w: %w", errNoCheck, err)
	case res.Failure != nil:
		return res.Failure
	}
	return nil
}
