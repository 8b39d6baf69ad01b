package testnet

import (
	"os"
	"sync"
	"testing"
)

// TestFoldersAreClaimedAtTheSameTime: a test that removes the remains of killed tests never takes the folder of a test
// that has only just begun.
func TestFoldersAreClaimedAtTheSameTime(t *testing.T) {
	var tests sync.WaitGroup
	for range 8 {
		tests.Go(func() {
			for range 100 {
				f, err := claimFolder()
				if err != nil {
					t.Error(err)
					return
				}
				if _, err := os.Stat(f.path); err != nil {
					t.Error(err)
				}
				if err := f.release(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	tests.Wait()
}
