package e2e

import (
	"os/exec"
	"runtime"
)

// startChild starts a program that receives a signal when this process ends, and calls exited with what cmd.Wait
// returns. The kernel sends that signal when the thread that started the program ends (PR_SET_PDEATHSIG, prctl(2)), and
// other tests end threads. So the thread waits for the program.
func startChild(cmd *exec.Cmd, exited func(error)) error {
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			exited(cmd.Wait())
		}
	}()
	return <-started
}
