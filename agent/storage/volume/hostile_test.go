package volume

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/agent/storage/scratch"
)

// Whatever a tenant makes of the tree, nothing outside it is read, and a cut comes to its end.
func TestAHostileTree(t *testing.T) {
	t.Parallel()
	root := newRoot(t)
	c := newCut(t, root)
	data := scratch.Data(root)
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte("the host's"), 0o600); err != nil {
		t.Fatal(err)
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(os.Symlink(secret, filepath.Join(data, "link")))
	must(os.Symlink("/proc/self/root", filepath.Join(data, "root")))
	must(os.Symlink("..", filepath.Join(data, "up")))
	must(unix.Mknod(filepath.Join(data, "device"), unix.S_IFBLK|0o666, int(unix.Mkdev(7, 0))))
	must(unix.Mkfifo(filepath.Join(data, "fifo"), 0o666))
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	must(err)
	defer unix.Close(fd)
	must(os.Chdir("/"))
	must(os.WriteFile(filepath.Join(data, "line\nbreak"), []byte("x"), 0o644))
	must(os.WriteFile(filepath.Join(data, "bad\xff"), []byte("y"), 0o644))
	must(os.WriteFile(filepath.Join(data, "setuid"), []byte("z"), 0o755))
	must(os.Chmod(filepath.Join(data, "setuid"), 0o755|os.ModeSetuid))
	huge, err := os.Create(filepath.Join(data, "huge"))
	must(err)
	must(huge.Truncate(1 << 60)) // a hole
	huge.Close()
	deep, err := unix.Open(data, unix.O_DIRECTORY, 0)
	must(err)
	for range maxDepth + 50 {
		must(unix.Mkdirat(deep, "d", 0o755))
		next, err := unix.Openat(deep, "d", unix.O_DIRECTORY, 0)
		must(err)
		unix.Close(deep)
		deep = next
	}
	unix.Close(deep)
	r, err := c.take(t.Context(), nil)
	must(err)
	if r.tree.LeftOut != 3 { // device, FIFO, what is too deep
		t.Errorf("%d were left out", r.tree.LeftOut)
	}
	if n := r.tree.at([]string{"setuid"}); n == nil || n.Mode&unix.S_ISUID != 0 {
		t.Errorf("%+v", n)
	}
	if n := r.tree.at([]string{"link"}); n == nil || n.Target != secret {
		t.Errorf("%+v", n)
	}
	if n := r.tree.at([]string{"line\nbreak"}); n == nil {
		t.Error("a name with a line break is missing")
	}
}

// A folder that becomes a symbolic link, and back, while it is looked at: nothing outside the volume is ever cloned.
func TestAFolderThatBecomesALink(t *testing.T) {
	t.Parallel()
	root := newRoot(t)
	c := newCut(t, root)
	data := scratch.Data(root)
	outside := filepath.Join(root, "outside") // on the same file system, so that a clone would succeed
	for _, dir := range []string{outside, filepath.Join(data, "a")} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 50 {
		name := "f" + strconv.Itoa(i)
		if err := errors.Join(os.WriteFile(filepath.Join(outside, name), []byte("outside"), 0o644),
			os.WriteFile(filepath.Join(data, "a", name), []byte("inside"), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(outside, filepath.Join(data, "b")); err != nil {
		t.Fatal(err)
	}
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-stop:
				return
			default:
				_ = unix.Renameat2(unix.AT_FDCWD, filepath.Join(data, "a"), unix.AT_FDCWD, filepath.Join(data, "b"),
					unix.RENAME_EXCHANGE)
			}
		}
	}()
	defer func() { close(stop); <-done }()
	for range 50 {
		r, err := c.take(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		for path, text := range c.contents(t, r.tree) {
			if text == "outside" {
				t.Fatalf("%s is of outside the volume", path)
			}
		}
	}
}
