package volume

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/agent/storage/scratch"
	"github.com/musterhq/muster/internal/agentapi"
)

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

var groups atomic.Int64

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

func (f freezerFunc) Thaw() error { return nil }

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
