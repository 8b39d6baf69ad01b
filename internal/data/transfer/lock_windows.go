package transfer

import (
	"os"

	"golang.org/x/sys/windows"
)

// lock keeps a file from other processes until it is closed, and fails at once if another has it. Windows refuses reads
// and writes of locked bytes: the locked one lies beyond what is written.
func lock(f *os.File) error {
	return windows.LockFileEx(windows.Handle(f.Fd()), windows.LOCKFILE_EXCLUSIVE_LOCK|windows.LOCKFILE_FAIL_IMMEDIATELY,
		0, 1, 0, &windows.Overlapped{OffsetHigh: 1 << 30})
}
