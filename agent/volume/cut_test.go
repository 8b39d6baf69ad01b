package volume

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/agent/scratch"
	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/id"
)

// TestMain is also the processes that tests start: the writer with an invariant, and the one that thaws.
func TestMain(m *testing.M) {
	if len(os.Args) > 2 && os.Args[1] == "thaw" { // first: it inherits the environment of the process that freezes
		os.Exit(Guard(os.Args[2:], os.Stdin, os.Stdout))
	}
	switch os.Getenv("VOLUME_TEST") {
	case "writer":
		writer(os.Getenv("VOLUME_TEST_DIR"))
	case "snapshot":
		snapshotOnce()
	case "freezer":
		freezeAndWait()
	}
	os.Exit(m.Run())
}

func thawCommand() []string { return []string{os.Args[0], "thaw"} }

// newRoot is the file system of a volume, as long as the test.
func newRoot(t *testing.T) string {
	t.Helper()
	s := scratch.New(t.TempDir(), 0, "0badcafe")
	ref := agentapi.LeaseRef{Lease: id.New[id.Lease]().String(), Epoch: 1}
	if err := s.MakeVolume(t.Context(), ref, "vol_test", 64<<20); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Sweep(func(agentapi.LeaseRef) bool { return false }); err != nil {
			t.Error(err)
		}
	})
	return s.VolumePath(ref, "vol_test")
}

// newCut is a cutter of the volume at a path.
func newCut(t *testing.T, root string) *cut {
	t.Helper()
	if err := os.MkdirAll(filepath.Join(root, cutName), 0o700); err != nil {
		t.Fatal(err)
	}
	data, err := os.Open(scratch.Data(root))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { data.Close() })
	dir, err := os.Open(filepath.Join(root, cutName))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { dir.Close() })
	c, err := openClones(int(dir.Fd()), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.dir.Close() })
	return &cut{data: int(data.Fd()), clones: c, now: time.Now}
}

// contents returns what a tree holds of files, by path.
func (c *cut) contents(t *testing.T, tr *tree) map[string]string {
	t.Helper()
	out := map[string]string{}
	var walk func(path string, n *node)
	walk = func(path string, n *node) {
		if n.isFile() {
			var b []byte
			if n.Clone != 0 {
				f, err := c.clones.open(n.Clone)
				if err != nil {
					t.Fatal(err)
				}
				defer f.Close()
				b = make([]byte, n.Size)
				if k, err := f.ReadAt(b, 0); err != nil || k != len(b) {
					t.Fatalf("%s: a clone of %d bytes where %d were seen: %v", path, k, len(b), err)
				}
			}
			out[path] = string(b)
		}
		if n.isLink() {
			out[path] = "-> " + n.Target
		}
		for _, k := range n.Kids {
			walk(path+"/"+k.Name, k)
		}
	}
	walk("", tr.Root)
	return out
}

const hotFiles = 200

// writer writes generations into all files, one after the other, as fast as it can: at any moment the files up to one
// have a generation and the rest have the one before.
func writer(dir string) {
	var files []*os.File
	page := make([]byte, 4096)
	write := func(f *os.File, g uint64) {
		for i := 0; i < len(page); i += 8 {
			binary.LittleEndian.PutUint64(page[i:], g)
		}
		if _, err := f.WriteAt(page, 0); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	for i := range hotFiles {
		f, err := os.Create(filepath.Join(dir, fmt.Sprintf("%03d", i)))
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		files = append(files, f)
		write(f, 1)
	}
	fmt.Println("ready")
	for g := uint64(2); ; g++ {
		for _, f := range files {
			write(f, g)
		}
	}
}

// torn returns why a cut of the writer's files is of no one moment.
func torn(files map[string]string) string {
	if len(files) != hotFiles {
		return fmt.Sprintf("%d files", len(files))
	}
	first, stepped, last := uint64(0), false, uint64(0)
	for i := range hotFiles {
		b := files[fmt.Sprintf("/%03d", i)]
		if len(b) != 4096 {
			return fmt.Sprintf("file %d has %d bytes", i, len(b))
		}
		g := binary.LittleEndian.Uint64([]byte(b))
		if b != strings.Repeat(b[:8], 512) {
			return fmt.Sprintf("file %d is torn", i)
		}
		switch {
		case i == 0:
			first = g
		case g == last:
		case g == last-1 && !stepped && last == first:
			stepped = true
		default:
			return fmt.Sprintf("file %d is of generation %d, the one before of %d", i, g, last)
		}
		last = g
	}
	return ""
}

// inGroupOf starts this test's executable as a process with a control group of its own.
func inGroupOf(t *testing.T, env ...string) *exec.Cmd {
	t.Helper()
	dir := filepath.Join(cgroups, "freezer")
	if _, err := os.Stat(dir); err != nil {
		dir = cgroups
	}
	dir = filepath.Join(dir, fmt.Sprintf("muster-test-%d-%d", os.Getpid(), groups.Add(1)))
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		eventually(t, "the end of a control group", func() bool { return os.Remove(dir) == nil })
	})
	// The shell joins the group and becomes the process.
	cmd := exec.Command("sh", "-c", `echo $$ > "$0"/cgroup.procs && exec "$1"`, dir, os.Args[0])
	cmd.Env = append(os.Environ(), env...)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if g, err := groupOf(cmd.Process.Pid); err == nil {
			_ = g.thaw() // a frozen process does not end
		}
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	if line := make([]byte, 6); true {
		if _, err := out.Read(line); err != nil {
			t.Fatalf("the process did not begin: %v", err)
		}
	}
	return cmd
}

var groups atomic.Int64

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(time.Minute)
	for !ok() {
		if time.Now().After(deadline) {
			t.Errorf("%s did not come", what)
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// cutsOf cuts a hot writer's files n times and returns how many cuts were torn, and the pauses.
func cutsOf(t *testing.T, n int, freezing bool) (broken int, exact int, pauses []time.Duration) {
	t.Helper()
	root := newRoot(t)
	c := newCut(t, root)
	w := inGroupOf(t, "VOLUME_TEST=writer", "VOLUME_TEST_DIR="+scratch.Data(root))
	records := t.TempDir()
	g, err := NewGroup(w.Process.Pid, records, thawCommand())
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	var f Freezer
	if freezing {
		f = g
	}
	for range n {
		r, err := c.take(t.Context(), f)
		if err != nil {
			t.Fatal(err)
		}
		if why := torn(c.contents(t, r.tree)); why != "" {
			if broken++; freezing && r.consistency == agentapi.SnapshotExact {
				t.Errorf("an exact cut is torn: %s (%d passes, paused %v)", why, r.passes, r.paused)
			}
		}
		if r.consistency == agentapi.SnapshotExact {
			exact++
		} else if freezing {
			t.Logf("not exact: %v", r.freezeErr)
		}
		pauses = append(pauses, r.paused)
		if c.base = r.tree; true {
			if err := c.clones.dropExcept(c.base); err != nil {
				t.Fatal(err)
			}
		}
	}
	if left, err := filepath.Glob(filepath.Join(records, "*")); err != nil || len(left) > 0 {
		t.Errorf("records of freezes are left: %v %v", left, err)
	}
	return broken, exact, pauses
}

// cutsInTest is how many cuts a test makes: MUSTER_TEST_CUTS=1000 for the long run.
func cutsInTest() int {
	if n, err := strconv.Atoi(os.Getenv("MUSTER_TEST_CUTS")); err == nil {
		return n
	}
	return 8
}

// No exact cut of 200 hot files is torn, and the writer is stopped for no longer than it may be.
func TestNoCutIsTorn(t *testing.T) {
	n := cutsInTest()
	broken, exact, pauses := cutsOf(t, n, true)
	slices.Sort(pauses)
	t.Logf("%d cuts, %d exact, %d torn among those called per_file; pauses: median %v, p99 %v, longest %v", n, exact,
		broken, pauses[n/2], pauses[n*99/100], pauses[n-1])
	if exact < n/2 {
		t.Errorf("only %d of %d cuts were exact", exact, n)
	}
	if longest := pauses[n-1]; longest > guardPatience {
		t.Errorf("the workload was stopped for %v", longest)
	}
}

// Without the freezer, cuts of the same writer are torn, and are called so: the test above can fail.
func TestCutsWithoutTheFreezerAreCalledPerFile(t *testing.T) {
	broken, exact, _ := cutsOf(t, 5, false)
	if broken == 0 {
		t.Error("no cut was torn: the writer is not hot enough to show anything")
	}
	if exact > 5-broken {
		t.Errorf("%d torn cuts, and %d of 5 called exact", broken, exact)
	}
}

// A quiet tree needs no pause, and its second cut clones nothing.
func TestAQuietTree(t *testing.T) {
	t.Parallel()
	root := newRoot(t)
	c := newCut(t, root)
	data := scratch.Data(root)
	for name, text := range map[string]string{"a": "1", "d/b": "2", "d/e/c": "3", "empty": ""} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(data, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(data, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Link(filepath.Join(data, "a"), filepath.Join(data, "d", "twin")); err != nil {
		t.Fatal(err)
	}
	never := freezerFunc(func(context.Context) error { return errors.New("a quiet tree was to be stopped") })
	r, err := c.take(t.Context(), never)
	if err != nil || r.consistency != agentapi.SnapshotExact || r.passes != 2 {
		t.Fatalf("%+v %v", r, err)
	}
	want := map[string]string{"/a": "1", "/d/b": "2", "/d/e/c": "3", "/d/twin": "1", "/empty": ""}
	if got := c.contents(t, r.tree); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got %q", got)
	}
	if a, b := r.tree.at([]string{"a"}), r.tree.at([]string{"d", "twin"}); a.Clone != b.Clone {
		t.Error("a file with two names was cloned twice")
	}
	c.base = r.tree
	next := c.clones.next
	if r, err = c.take(t.Context(), never); err != nil || c.clones.next != next {
		t.Errorf("the second cut of an unchanged tree made %d clones: %v", c.clones.next-next, err)
	}
	if err := os.WriteFile(filepath.Join(data, "d", "b"), []byte("4"), 0o644); err != nil {
		t.Fatal(err)
	}
	if r, err = c.take(t.Context(), never); err != nil || c.clones.next != next+1 || c.contents(t, r.tree)["/d/b"] != "4" {
		t.Errorf("one changed file made %d clones: %v", c.clones.next-next, err)
	}
	if old := c.contents(t, c.base)["/d/b"]; old != "2" {
		t.Errorf("the last snapshot's clone has become %q", old)
	}
}

type freezerFunc func(context.Context) error

func (f freezerFunc) Freeze(ctx context.Context) error { return f(ctx) }
func (f freezerFunc) Thaw() error                      { return nil }

// Where ctime advances in ticks, a write that leaves every stamp as it was is found all the same.
func TestAChangeWithinATick(t *testing.T) {
	t.Parallel()
	old := node{Mode: unix.S_IFREG, Stamp: Stamp{Size: 1, CtimeNS: 1000}, ClonedNS: 1000 + int64(ticks)/2}
	now := old
	if now.same(&old, ticks) {
		t.Error("a file that was cloned within a tick of its last change counts as unchanged")
	}
	if !now.same(&old, 0) {
		t.Error("with exact times, too")
	}
	old.ClonedNS = 1001 + int64(ticks)
	if !now.same(&old, ticks) {
		t.Error("a file that was cloned long after its last change counts as changed")
	}
}

// A folder alone: the rest stays as the last snapshot has it.
func TestACutOfAFolder(t *testing.T) {
	t.Parallel()
	root := newRoot(t)
	c := newCut(t, root)
	data := scratch.Data(root)
	write := func(name, text string) {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(data, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(data, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("logs/x", "old")
	write("ckpt/1/w", "old")
	r, err := c.take(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	c.base = r.tree
	write("logs/x", "new")
	write("ckpt/1/w", "new")
	write("ckpt/2/w", "new")
	r, err = c.part(t.Context(), []string{"ckpt", "2"})
	want := map[string]string{"/logs/x": "old", "/ckpt/1/w": "old", "/ckpt/2/w": "new"}
	if got := c.contents(t, r.tree); err != nil || fmt.Sprint(got) != fmt.Sprint(want) ||
		r.consistency != agentapi.SnapshotExact {
		t.Errorf("%v %v %s", got, err, r.consistency)
	}
	if err := os.Symlink("/etc", filepath.Join(data, "out")); err != nil {
		t.Fatal(err)
	}
	for _, path := range [][]string{{"out"}, {".."}, {"logs", "x"}, {"nothing"}} {
		if _, err := c.part(t.Context(), path); err == nil {
			t.Errorf("%q was cut", path)
		}
	}
}

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

// freezeAndWait is the process that is killed while its freeze lasts.
func freezeAndWait() {
	pid, err := strconv.Atoi(os.Getenv("VOLUME_TEST_PID"))
	if err == nil {
		var g *Group
		if g, err = NewGroup(pid, os.Getenv("VOLUME_TEST_DIR"), thawCommand()); err == nil {
			err = g.Freeze(context.Background())
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println("ready")
	select {}
}

// A process that froze a node and is killed: the one beside it thaws the node, within its patience.
func TestAFreezeEndsWithItsProcess(t *testing.T) {
	for _, how := range []string{"killed", "hangs"} {
		t.Run(how, func(t *testing.T) {
			root := newRoot(t)
			w := inGroupOf(t, "VOLUME_TEST=writer", "VOLUME_TEST_DIR="+scratch.Data(root))
			cmd := exec.Command(os.Args[0])
			cmd.Env = append(os.Environ(), "VOLUME_TEST=freezer", "VOLUME_TEST_DIR="+t.TempDir(),
				"VOLUME_TEST_PID="+strconv.Itoa(w.Process.Pid))
			cmd.Stderr = os.Stderr
			out, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
			if _, err := out.Read(make([]byte, 6)); err != nil {
				t.Fatal("nothing was frozen")
			}
			g, err := groupOf(w.Process.Pid)
			if err != nil {
				t.Fatal(err)
			}
			begun := time.Now()
			if how == "killed" {
				if ok, err := g.stopped(); err != nil || !ok {
					t.Logf("thawed before it was looked at: %v", err)
				}
				if err := cmd.Process.Signal(syscall.SIGKILL); err != nil {
					t.Fatal(err)
				}
			}
			eventually(t, "the thaw", func() bool { ok, err := g.stopped(); return err == nil && !ok })
			t.Logf("thawed after %v", time.Since(begun))
		})
	}
}

// Both were killed: the next start thaws by the record.
func TestTheNextStartThaws(t *testing.T) {
	root := newRoot(t)
	w := inGroupOf(t, "VOLUME_TEST=writer", "VOLUME_TEST_DIR="+scratch.Data(root))
	records := t.TempDir()
	g, err := NewGroup(w.Process.Pid, records, thawCommand())
	if err != nil {
		t.Fatal(err)
	}
	if err := g.Freeze(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := g.guard.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = g.guard.cmd.Wait()
	if ok, err := g.group.stopped(); err != nil || !ok {
		t.Fatalf("the node is not frozen: %v", err)
	}
	if err := ThawAll(records); err != nil {
		t.Fatal(err)
	}
	if ok, err := g.group.stopped(); err != nil || ok {
		t.Errorf("the node is still frozen: %v", err)
	}
}

// Neither the machine's group nor the agent's own is ever frozen.
func TestOnlyANodesGroupIsFrozen(t *testing.T) {
	t.Parallel()
	for _, pid := range []int{1, os.Getpid()} {
		if g, err := groupOf(pid); err == nil {
			t.Errorf("process %d would be frozen with %+v", pid, g)
		}
	}
}

// What differs between a file and its older clone is found without reading either.
func TestChangedRanges(t *testing.T) {
	t.Parallel()
	root := newRoot(t)
	c := newCut(t, root)
	const mb = 1 << 20
	f, err := os.Create(filepath.Join(scratch.Data(root), "big"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	write := func(at, n int64, b byte) {
		t.Helper()
		if _, err := f.WriteAt(bytes.Repeat([]byte{b}, int(n)), at); err != nil {
			t.Fatal(err)
		}
	}
	write(0, 32*mb, 1)
	n, err := c.clones.take(int(f.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	old, err := c.clones.open(n)
	if err != nil {
		t.Fatal(err)
	}
	defer old.Close()
	check := func(size int64, want ...int64) {
		t.Helper()
		got, ok, err := changedRanges(f, old, size, 32*mb)
		if err != nil || !ok {
			t.Fatalf("%v %v", ok, err)
		}
		var have []int64
		for _, r := range got {
			have = append(have, r.Offset, r.Length)
		}
		if !slices.Equal(have, want) {
			t.Errorf("got %v, want %v", have, want)
		}
	}
	check(32 * mb)
	write(4*mb, mb, 2)
	write(20*mb+4096, 4096, 3)
	check(32*mb, 4*mb, mb, 20*mb+4096, 4096)
	write(32*mb, mb, 4)
	check(33*mb, 4*mb, mb, 20*mb+4096, 4096, 32*mb, mb)
	if err := unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, 8*mb, mb); err != nil {
		t.Fatal(err)
	}
	check(33*mb, 4*mb, mb, 8*mb, mb, 20*mb+4096, 4096, 32*mb, mb)
	holes, err := holesOf(f, 33*mb)
	if err != nil || len(holes) != 1 || holes[0].Offset != 8*mb || holes[0].Length != mb {
		t.Errorf("holes %v %v", holes, err)
	}
	if err := f.Truncate(6 * mb); err != nil {
		t.Fatal(err)
	}
	check(6*mb, 4*mb, mb)
}
