package scratch

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/internal/agentapi"
)

// A volume's file system clones files, is found by a sweep as what its run has, and counts as taken.
func TestAVolumeClonesFiles(t *testing.T) {
	t.Parallel()
	s := disk(t, 1<<30)
	if p := s.CheckVolumes(t.Context()); p != nil {
		t.Fatalf("%+v", p)
	}
	ref := newRef()
	path := s.VolumePath(ref, "vol_a")
	for range 2 { // repeating it changes nothing
		if err := s.make(t.Context(), path, cloning, agentapi.MinVolumeRoom); err != nil {
			t.Fatal(err)
		}
	}
	a, err := os.Create(filepath.Join(Data(path), "a"))
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	if _, err := a.Write(marker); err != nil {
		t.Fatal(err)
	}
	b, err := os.Create(filepath.Join(path, "b"))
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	if err := unix.IoctlFileClone(int(b.Fd()), int(a.Fd())); err != nil {
		t.Errorf("clone: %v", err)
	}
	if room, err := s.Room(); err != nil || room.Taken != agentapi.MinVolumeRoom {
		t.Errorf("room: %+v, %v", room, err)
	}
	if err := s.Sweep(func(r agentapi.LeaseRef) bool { return r == ref }); err != nil {
		t.Fatal(err)
	}
	if there, err := Ready(path); err != nil || !there {
		t.Errorf("a sweep took the volume of a run that is there: %v", err)
	}
	a.Close()
	b.Close()
	if err := s.Sweep(func(agentapi.LeaseRef) bool { return false }); err != nil {
		t.Fatal(err)
	}
	if there, err := Ready(path); err != nil || there {
		t.Errorf("a sweep left the volume of a run that is gone: %v", err)
	}
}

// The doctor names the package that is missing.
func TestWithoutXFSPrograms(t *testing.T) {
	s := disk(t, 64*mb)
	whole := cloning
	t.Cleanup(func() { cloning = whole })
	cloning.mkfs = "mkfs.of-nothing"
	p := s.CheckVolumes(t.Context())
	if p == nil || p.Code != ProblemNoVolumes || !strings.Contains(p.Fix, "apt install xfsprogs") {
		t.Errorf("%+v", p)
	}
}

func TestAVolumesNameIsAnID(t *testing.T) {
	t.Parallel()
	s := New(t.TempDir(), 0, "0badcafe")
	for _, name := range []string{"", "../x", "a+b"} {
		if err := s.MakeVolume(t.Context(), newRef(), name, mb); err == nil {
			t.Errorf("%q was taken", name)
		}
	}
}
