package mountns

import (
	"os"
	"runtime"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

// The main thread never runs what changes a thread for good, although every other thread is busy with it.
func TestTheMainThreadIsNotUsed(t *testing.T) {
	var all sync.WaitGroup
	for range 8 * runtime.GOMAXPROCS(0) {
		all.Go(func() {
			for range 50 {
				_ = OnThread(func() error {
					if unix.Gettid() == os.Getpid() {
						t.Error("it runs on the main thread")
					}
					return nil
				})
			}
		})
	}
	all.Wait()
}
