package sharedfs

import (
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// A folder has its permissions from the moment at which it exists, whatever the agent's umask, and keeps those that its
// renter gave it.
func TestFoldersHaveTheirPermissions(t *testing.T) {
	was := unix.Umask(0o077)
	t.Cleanup(func() { unix.Umask(was) })
	dir, err := os.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	if err := mkdir(int(dir.Fd()), "new", 0o777); err != nil {
		t.Fatal(err)
	}
	perm := func() os.FileMode {
		fd, err := makeDir(int(dir.Fd()), "new", 0o777)
		if err != nil {
			t.Fatal(err)
		}
		f := os.NewFile(uintptr(fd), "new")
		defer f.Close()
		st, err := f.Stat()
		if err != nil {
			t.Fatal(err)
		}
		return st.Mode().Perm()
	}
	if p := perm(); p != 0o777 {
		t.Errorf("made with %o", p)
	}
	if err := os.Chmod(dir.Name()+"/new", 0o700); err != nil {
		t.Fatal(err)
	}
	if p := perm(); p != 0o700 {
		t.Errorf("opened, and changed to %o", p)
	}
	if now := unix.Umask(0o077); now != 0o077 {
		t.Errorf("the agent's umask became %o", now)
	}
}
