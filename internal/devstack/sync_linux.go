package devstack

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// syncFileSystem makes everything durable that was written to the file system of a folder.
func syncFileSystem(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := unix.Syncfs(int(f.Fd())); err != nil {
		return fmt.Errorf("sync %s: %w", dir, err)
	}
	return nil
}
