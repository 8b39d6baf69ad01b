package scratch

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
)

const mb = 1 << 20

// TestMain is also the process that makes a scratch and dies at a step of it.
func TestMain(m *testing.M) {
	if dir := os.Getenv("SCRATCH_TEST_DIR"); dir != "" {
		reached = func(step string) {
			if step == os.Getenv("SCRATCH_TEST_STEP") {
				_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
				select {}
			}
		}
		if ns := os.Getenv("SCRATCH_TEST_MOUNTS"); ns != "" {
			hostMounts = ns
		}
		s := New(dir, 0, "0badcafe")
		if err := s.make(context.Background(), s.Path(childRef), plain, 32*mb); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

var childRef = agentapi.LeaseRef{Lease: "lease_child", Epoch: 1}

// disk is a disk of its own for a test, which is there as long as the test is.
func disk(t *testing.T, size int64) *Store {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "nvme")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	err := onHost(func() error {
		return build(t.Context(), filepath.Dir(dir), plain, size, func(mount int) error {
			return unix.MoveMount(mount, "", unix.AT_FDCWD, dir, unix.MOVE_MOUNT_F_EMPTY_PATH)
		})
	})
	if err != nil {
		t.Fatal(err)
	}
	return storeAt(t, dir)
}

// storeAt is a store on what is mounted at dir. All of it is gone after the test.
func storeAt(t *testing.T, dir string) *Store {
	t.Helper()
	t.Cleanup(func() {
		if err := Release(dir); err != nil {
			t.Error(err)
		}
	})
	s := New(dir, 0, "0badcafe")
	t.Cleanup(func() {
		if err := s.Sweep(func(agentapi.LeaseRef) bool { return false }); err != nil {
			t.Error(err)
		}
	})
	return s
}

func newRef() agentapi.LeaseRef {
	return agentapi.LeaseRef{Lease: id.New[id.Lease]().String(), Epoch: 1}
}

func (s *Store) mustMake(t *testing.T, ref agentapi.LeaseRef, size int64) string {
	t.Helper()
	if err := s.make(t.Context(), s.Path(ref), plain, size); err != nil {
		t.Fatal(err)
	}
	return s.Path(ref)
}

// fill writes pages to a new file of a scratch until there is no room, and returns how much there was.
func fill(t *testing.T, path string, page []byte) (written int64) {
	t.Helper()
	f, err := os.Create(filepath.Join(Data(path), "fill"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	block := bytes.Repeat(page, mb/len(page))
	for {
		n, err := f.Write(block)
		written += int64(n)
		if errors.Is(err, unix.ENOSPC) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := f.Sync(); err != nil {
		t.Fatal(err)
	}
	return written
}

// free is what the disk below has for others.
func (s *Store) free(t *testing.T) int64 {
	t.Helper()
	var st unix.Statfs_t
	if err := unix.Statfs(s.dir, &st); err != nil {
		t.Fatal(err)
	}
	return int64(st.Bavail) * st.Bsize
}

// raw is the device under what is mounted at path.
func raw(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		head, tail, _ := strings.Cut(line, " - ")
		if h, tl := strings.Fields(head), strings.Fields(tail); len(h) > 4 && h[4] == path && len(tl) > 1 {
			return tl[1]
		}
	}
	t.Fatalf("nothing is mounted at %s", path)
	return ""
}

// holds reports whether a device has a page that begins so.
func holds(t *testing.T, device string, page []byte) bool {
	t.Helper()
	f, err := os.Open(device)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	block := make([]byte, mb)
	for {
		n, err := io.ReadFull(f, block)
		if bytes.Contains(block[:n], page[:64]) {
			return true
		}
		if err == io.EOF || err == io.ErrUnexpectedEOF {
			return false
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(2 * time.Minute)
	for !ok() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("%s did not come", what)
		}
	}
}

var marker = bytes.Repeat([]byte("what a renter wrote must never be seen by the next one, nowhere\n"), 64)

// A scratch that is full is full for its own lease alone: its neighbour has all that it was given, and the disk what it
// had.
func TestAFullScratchHarmsNobody(t *testing.T) {
	t.Parallel()
	aFullScratch(t, disk(t, 256*mb))
}

func aFullScratch(t *testing.T, s *Store) {
	t.Helper()
	greedy, neighbour := s.mustMake(t, newRef(), 64*mb), s.mustMake(t, newRef(), 64*mb)
	before := s.free(t)
	for _, path := range []string{greedy, neighbour} {
		if n := fill(t, path, marker); n > 64*mb || n < 60*mb {
			t.Errorf("a scratch of %d bytes held %d", 64*mb, n)
		}
	}
	if after := s.free(t); after < before-mb {
		t.Errorf("the disk had %d bytes free, and %d when the scratches were full", before, after)
	}
	room, err := s.Room()
	if err != nil || room.Taken != 128*mb || room.Total <= room.Taken {
		t.Errorf("room %+v, %v", room, err)
	}
	if err := s.make(t.Context(), s.Path(newRef()), plain, room.Total-room.Taken+mb); !fault.Is(err, fault.Unavailable) {
		t.Errorf("more was made than there is: %v", err)
	}
}

// The second scratch takes more than half of a disk of which the first took more than half: they share blocks of the
// disk. The disk has still what the first wrote; the second's whole device does not.
func TestNothingOfAScratchIsInTheNext(t *testing.T) {
	t.Parallel()
	nothingInTheNext(t, disk(t, 128*mb))
}

func nothingInTheNext(t *testing.T, s *Store) {
	t.Helper()
	room, err := s.Room()
	if err != nil {
		t.Fatal(err)
	}
	size := room.Total / 100 * 65 / mb * mb
	first := s.mustMake(t, newRef(), size)
	fill(t, first, marker)
	if !holds(t, raw(t, first), marker) {
		t.Fatal("what was written is not on the scratch's device: the test sees nothing")
	}
	if err := Release(first); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(first); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("its place is left: %v", err)
	}
	if err := Release(first); err != nil {
		t.Errorf("once more: %v", err)
	}
	eventually(t, "the first one's room", func() bool { s.recover(); return s.free(t) > size+size/10 })
	second := s.mustMake(t, newRef(), size)
	if !holds(t, raw(t, s.dir), marker) {
		t.Error("the disk below has nothing of the first any more: the test proves nothing")
	}
	if holds(t, raw(t, second), marker) {
		t.Error("the next scratch has what the first one's renter wrote")
	}
	if entries, err := os.ReadDir(Data(second)); err != nil || len(entries) != 0 {
		t.Errorf("it is not empty: %v %v", entries, err)
	}
}

func TestAScratchIsMadeOnce(t *testing.T) {
	t.Parallel()
	s := disk(t, 128*mb)
	ref := newRef()
	path := s.mustMake(t, ref, 32*mb)
	if err := os.WriteFile(filepath.Join(Data(path), "kept"), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	s.mustMake(t, ref, 32*mb)
	if _, err := os.Stat(filepath.Join(Data(path), "kept")); err != nil {
		t.Errorf("made again over what was there: %v", err)
	}
	if there, err := Ready(path); err != nil || !there {
		t.Errorf("ready %v, %v", there, err)
	}
	var st unix.Statfs_t
	if err := unix.Statfs(path, &st); err != nil || st.Flags&unix.ST_NOSUID == 0 || st.Flags&unix.ST_NODEV == 0 {
		t.Errorf("mounted with flags %#x, %v", st.Flags, err)
	}
	if info, err := os.Stat(Data(path)); err != nil || info.Mode() != os.ModeDir|os.ModeSticky|0o777 {
		t.Errorf("an image's user could not write: %v %v", info.Mode(), err)
	}
	next := ref
	next.Epoch = 2
	if _, err := os.Stat(filepath.Join(Data(s.mustMake(t, next, 32*mb)), "kept")); err == nil {
		t.Error("the next epoch has what the former wrote")
	}
}

// A killed agent leaves a scratch that can be used, or nothing: no room taken, no device, and the next makes it.
func TestKilledWhileItMakesAScratch(t *testing.T) {
	t.Parallel()
	for _, step := range steps {
		t.Run(step, func(t *testing.T) {
			t.Parallel()
			killedAt(t, disk(t, 64*mb), step)
		})
	}
}

// steps are those of build.
var steps = []string{"file", "allocated", "formatted", "attached", "mounted", "prepared", "placed"}

func killedAt(t *testing.T, s *Store, step string) {
	t.Helper()
	before := s.free(t)
	var said bytes.Buffer
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env, cmd.Stderr = append(os.Environ(), "SCRATCH_TEST_DIR="+s.dir, "SCRATCH_TEST_STEP="+step), &said
	var exit *exec.ExitError
	if err := cmd.Run(); !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
		t.Fatalf("not killed: %v %s", err, said.String())
	}
	there, err := Ready(s.Path(childRef))
	if err != nil || there != (step == "placed") {
		t.Errorf("ready %v, %v", there, err)
	}
	if !there {
		eventually(t, "the room it had taken", func() bool { s.recover(); return s.free(t) >= before-mb })
	}
	path := s.mustMake(t, childRef, 32*mb)
	fill(t, path, marker)
}

// An agent under systemd has a mount namespace of its own. What it makes is where Docker looks.
func TestAScratchIsSeenByTheWholeMachine(t *testing.T) {
	t.Parallel()
	s := disk(t, 64*mb)
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), "SCRATCH_TEST_DIR="+s.dir, fmt.Sprintf("SCRATCH_TEST_MOUNTS=/proc/%d/ns/mnt",
		os.Getpid()))
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if there, err := Ready(s.Path(childRef)); err != nil || !there {
		t.Errorf("ready %v, %v", there, err)
	}
}

func TestSweepLeavesWhatIsWanted(t *testing.T) {
	t.Parallel()
	s := disk(t, 128*mb)
	wanted, left := newRef(), newRef()
	s.mustMake(t, wanted, 16*mb)
	s.mustMake(t, left, 16*mb)
	if err := os.Mkdir(filepath.Join(s.own, newRef().Lease+"-e3"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := s.Sweep(func(ref agentapi.LeaseRef) bool { return ref == wanted }); err != nil {
		t.Fatal(err)
	}
	if paths, err := s.paths(); err != nil || len(paths) != 1 || paths[0] != s.Path(wanted) {
		t.Errorf("left: %v %v", paths, err)
	}
	if there, err := Ready(s.Path(wanted)); err != nil || !there {
		t.Errorf("ready %v, %v", there, err)
	}
	if err := s.Sweep(func(agentapi.LeaseRef) bool { return false }); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(s.own); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the agent's folder is left: %v", err)
	}
}

// A process on the host that holds files of a scratch open does not keep its lease from ending.
func TestAScratchInUseIsReleased(t *testing.T) {
	t.Parallel()
	s := disk(t, 64*mb)
	path := s.mustMake(t, newRef(), 32*mb)
	f, err := os.Create(filepath.Join(Data(path), "open"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := Release(path); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("it is left: %v", err)
	}
}

func TestTheOperatorsBoundHolds(t *testing.T) {
	t.Parallel()
	s := disk(t, 128*mb)
	s.limit = 40 * mb
	s.mustMake(t, newRef(), 32*mb)
	err := s.make(t.Context(), s.Path(newRef()), plain, 32*mb)
	if !fault.Is(err, fault.Unavailable) || !strings.Contains(err.Error(), "has room for") {
		t.Errorf("%v", err)
	}
	if room, err := s.Room(); err != nil || room.Total != 40*mb {
		t.Errorf("room %+v, %v", room, err)
	}
}

func TestCheckSaysWhatIsMissing(t *testing.T) {
	t.Parallel()
	good := disk(t, 64*mb)
	before := good.free(t)
	if p := good.Check(t.Context()); p != nil {
		t.Errorf("%+v", p)
	}
	eventually(t, "the probe's room", func() bool { return good.free(t) >= before-mb })
	if entries, err := os.ReadDir(good.dir); err != nil || len(entries) != 2 { // of the test's own disk
		t.Errorf("the check left %v, %v", entries, err)
	}
	for name, c := range map[string]struct{ dir, fix string }{
		"relative":            {"nvme", "from / on"},
		"no folder":           {filepath.Join(t.TempDir(), "none"), "Make the folder"},
		"no room is for good": {"/proc", "ext4, XFS or btrfs"},
	} {
		if p := New(c.dir, 0, "0badcafe").Check(t.Context()); p == nil || p.Code != ProblemUnusable ||
			!strings.Contains(p.Fix, c.fix) || p.Evidence == "" {
			t.Errorf("%s: %+v", name, p)
		}
	}
	full := disk(t, 16*mb)
	full.mustMake(t, newRef(), 12*mb)
	if p := full.Check(t.Context()); p == nil || !strings.Contains(p.Fix, "Make room") {
		t.Errorf("no room: %+v", p)
	}
}
