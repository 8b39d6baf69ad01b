package scratch

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/fault"
)

// refusedTo wants a new scratch to be refused in words that say why.
func (s *Store) refusedTo(t *testing.T, why string) {
	t.Helper()
	err := s.make(t.Context(), s.Path(newRef()), plain, 16*mb)
	if f := fault.From(err); f == nil || f.Kind != fault.Unavailable || !strings.Contains(f.Message, why) {
		t.Errorf("want %q: %v", why, err)
	}
}

// lacks checks that Check reports a problem and how to fix it.
func (s *Store) lacks(t *testing.T, evidence, fix string) {
	t.Helper()
	if p := s.Check(t.Context()); p == nil || p.Code != ProblemUnusable || !strings.Contains(p.Evidence, evidence) ||
		!strings.Contains(p.Fix, fix) {
		t.Errorf("want %q, %q: %+v", evidence, fix, p)
	}
}

// lost checks why a scratch that was usable is lost, or that it is not if why is empty.
func lost(t *testing.T, path, why string) {
	t.Helper()
	if got, err := Lost(path); err != nil || !strings.Contains(got, why) || (why == "") != (got == "") {
		t.Errorf("want %q: %q, %v", why, got, err)
	}
}

// released wants a scratch to be gone, whatever its disk does.
func released(t *testing.T, path string) {
	t.Helper()
	if err := Release(path); err != nil {
		t.Fatal(err)
	}
	if there, err := Ready(path); err != nil || there {
		t.Errorf("it is still there: %v %v", there, err)
	}
	if lines, err := mountLines(); err != nil {
		t.Error(err)
	} else if l, ok := mountedAt(lines, path); ok {
		t.Errorf("it is still mounted: %+v", l)
	}
}

// When others fill the disk, what was given stays given, to the last byte; nothing new is given, and what ends is gone.
func TestAFullDiskTakesNothingFromAScratch(t *testing.T) {
	t.Parallel()
	onAFullDisk(t, disk(t, 256*mb))
}

func onAFullDisk(t *testing.T, s *Store) {
	t.Helper()
	if p := s.Check(t.Context()); p != nil {
		t.Fatalf("%+v", p)
	}
	path := s.mustMake(t, newRef(), 64*mb)
	stuff, err := os.Create(filepath.Join(s.dir, "others"))
	if err != nil {
		t.Fatal(err)
	}
	defer stuff.Close()
	for block := bytes.Repeat([]byte{1}, mb); err == nil; {
		_, err = stuff.Write(block)
	}
	if errors.Is(err, unix.ENOSPC) {
		err = stuff.Sync()
	}
	if err != nil && !errors.Is(err, unix.ENOSPC) {
		t.Fatal(err)
	}
	s.refusedTo(t, "has room for 0 GB")
	if n := fill(t, path, marker); n > 64*mb || n < 60*mb {
		t.Errorf("a scratch of %d bytes held %d", 64*mb, n)
	}
	lost(t, path, "")
	released(t, path)
}

// After the kernel has stopped writing to a disk, its scratch is reported lost, no new scratch is given, and leases can
// still end.
func TestAReadOnlyDisk(t *testing.T) {
	t.Parallel()
	s := disk(t, 128*mb)
	if p := s.Check(t.Context()); p != nil {
		t.Fatalf("%+v", p)
	}
	path := s.mustMake(t, newRef(), 32*mb)
	lost(t, path, "")
	trigger := fmt.Sprintf("/sys/fs/ext4/%s/trigger_fs_error", filepath.Base(raw(t, s.dir)))
	if err := os.WriteFile(trigger, []byte("a test"), 0o600); err != nil {
		t.Fatal(err)
	}
	lost(t, path, "disk has become read-only")
	s.refusedTo(t, "has become read-only")
	s.lacks(t, "read-only", "mount it for writing")
	released(t, path)
}

// The same of a disk that the operator mounts read-only while nothing is on it.
func TestADiskThatIsMountedReadOnly(t *testing.T) {
	t.Parallel()
	mountedReadOnly(t, disk(t, 64*mb))
}

func mountedReadOnly(t *testing.T, s *Store) {
	t.Helper()
	if p := s.Check(t.Context()); p != nil {
		t.Fatalf("%+v", p)
	}
	remount := func(flags uintptr) error { return unix.Mount("", s.dir, "", unix.MS_REMOUNT|unix.MS_BIND|flags, "") }
	eventually(t, "the probe's end", func() bool { return remount(unix.MS_RDONLY) == nil })
	s.refusedTo(t, "has become read-only")
	s.lacks(t, "read-only", "mount it for writing")
	if err := remount(0); err != nil {
		t.Fatal(err)
	}
	if p := s.Check(t.Context()); p != nil {
		t.Errorf("after the repair: %+v", p)
	}
	s.mustMake(t, newRef(), 16*mb)
}

// A disk that answers nothing but errors.
func TestADeadDisk(t *testing.T) {
	t.Parallel()
	onADeadDisk(t, disk(t, 128*mb))
}

func onADeadDisk(t *testing.T, s *Store) {
	t.Helper()
	if p := s.Check(t.Context()); p != nil {
		t.Fatalf("%+v", p)
	}
	path, another := s.mustMake(t, newRef(), 32*mb), s.mustMake(t, newRef(), 32*mb)
	abandon(s.dir)
	s.refusedTo(t, "the host's scratch disk ")
	if p := s.Check(t.Context()); p == nil || p.Evidence == "" || p.Fix == "" {
		t.Errorf("%+v", p)
	}
	released(t, path)
	if err := s.Sweep(func(agentapi.LeaseRef) bool { return false }); err != nil {
		t.Errorf("the sweep of a dead disk: %v", err)
	}
	released(t, another)
}

// The disk is unmounted under a lease: a process that uses its scratch keeps it, nothing is made on the disk below, and
// the lease ends like any other.
func TestADiskThatVanishes(t *testing.T) {
	t.Parallel()
	vanished(t, disk(t, 128*mb))
}

func vanished(t *testing.T, s *Store) {
	t.Helper()
	if p := s.Check(t.Context()); p != nil {
		t.Fatalf("%+v", p)
	}
	path := s.mustMake(t, newRef(), 32*mb)
	used, err := os.Create(filepath.Join(Data(path), "used")) // as a container's mount does
	if err != nil {
		t.Fatal(err)
	}
	defer used.Close()
	if err := unix.Unmount(s.dir, unix.MNT_DETACH); err != nil {
		t.Fatal(err)
	}
	if _, err := used.Write(marker); err != nil {
		t.Error(err)
	}
	if err := used.Sync(); err != nil {
		t.Error(err)
	}
	lost(t, path, "")
	s.refusedTo(t, "is not mounted")
	s.lacks(t, "another file system", "Mount the disk there again")
	released(t, path)
	if entries, err := os.ReadDir(s.dir); err != nil || len(entries) != 0 {
		t.Errorf("on the disk below: %v %v", entries, err)
	}
	if err := os.Remove(s.dir); err != nil {
		t.Fatal(err)
	}
	s.refusedTo(t, "is not mounted")
	s.lacks(t, "no such file", "see that the disk is mounted")
}

func TestMountsAreRead(t *testing.T) {
	t.Parallel()
	lines := parseMounts(`22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
30 22 259:1 / /mnt/the\040fast\040one rw,noatime shared:9 master:2 - ext4 /dev/nvme0n1 rw,emergency_ro,stripe=8
31 30 7:3 / /mnt/the\040fast\040one/muster-a1/lease_x-e2 rw,nosuid - ext4 /dev/loop3 rw
32 22 259:2 / /mnt/other ro - xfs /dev/nvme1n1 ro,shutdown
33 22 259:3 / /mnt/otherwise rw - btrfs /dev/nvme2n1 rw
nonsense
`)
	if len(lines) != 5 {
		t.Fatalf("%+v", lines)
	}
	for path, want := range map[string][2]string{
		"/mnt/the fast one/muster-a1": {"/mnt/the fast one", "read-only"},
		"/mnt/other/x":                {"/mnt/other", "failed"},
		"/mnt/otherwise":              {"/mnt/otherwise", ""},
		"/srv":                        {"/", ""},
	} {
		if on := below(lines, path); on.point != want[0] || !strings.Contains(on.condition(), want[1]) ||
			(want[1] == "") != (on.condition() == "") {
			t.Errorf("%s: %+v %q", path, on, on.condition())
		}
	}
	for path, want := range map[string]bool{
		"/mnt/the fast one/muster-a1/lease_x-e2": true,
		"/by/a/link/muster-a1/lease_x-e2":        true,
		"/mnt/the fast one/muster-a1/lease_x-e1": false,
		"/mnt/the fast one/muster-a1/e2":         false,
	} {
		if at, ok := mountedAt(lines, path); ok != want || ok && at.condition() != "" {
			t.Errorf("%s: %+v %v", path, at, ok)
		}
	}
}
