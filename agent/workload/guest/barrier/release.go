package barrier

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/agent/leasefiles"
	"github.com/musterhq/muster/internal/agentapi"
)

// lookAgain is how long, in milliseconds, a release may go unnoticed where inotify does not see the other side of a
// mount.
const lookAgain = 100

// awaitOpen returns nil when ref's barrier is open, and an error if it never will be: another epoch was released, or
// the guest at the other end of line has ended.
func awaitOpen(nodeDir string, ref agentapi.LeaseRef, line int) error {
	watch, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err == nil {
		defer unix.Close(watch)
		_, err = unix.InotifyAddWatch(watch, nodeDir, unix.IN_MOVED_TO|unix.IN_CREATE)
	}
	if err != nil {
		watch = -1 // poll ignores it: the file is checked every lookAgain
	}
	buf := make([]byte, 4096)
	for {
		released, ok, err := leasefiles.BarrierOpen(nodeDir)
		switch {
		case err != nil:
			return err
		case ok && released == ref:
			return nil
		case ok:
			return fmt.Errorf("%s was released, this is %s", released, ref)
		}
		fds := []unix.PollFd{{Fd: int32(watch), Events: unix.POLLIN}, {Fd: int32(line), Events: unix.POLLIN}}
		if _, err := unix.Poll(fds, lookAgain); err != nil && !errors.Is(err, unix.EINTR) {
			return os.NewSyscallError("poll", err)
		}
		if fds[1].Revents != 0 {
			return errors.New("the guest has ended")
		}
		if fds[0].Revents != 0 {
			_, _ = unix.Read(watch, buf) // the kind of event does not matter: the file is checked
		}
	}
}
