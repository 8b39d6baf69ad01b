package scratch

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/fault"
)

// volumeMark separates a run from the volume's id in the name of a volume's mount point. Ids contain no such
// character.
const volumeMark = "+"

// VolumePath returns where a volume of a run is mounted.
func (s *Store) VolumePath(ref agentapi.LeaseRef, volume string) string {
	return s.Path(ref) + volumeMark + volume
}

// MakeVolume creates an empty file system for a volume of a run, unless the run has it: like a scratch, but one whose
// files can be cloned. size is what the volume's own files may take; what clones of old blocks need is added to it.
func (s *Store) MakeVolume(ctx context.Context, ref agentapi.LeaseRef, volume string, size int64) error {
	if volume == "" || strings.ContainsAny(volume, "/"+volumeMark) {
		return fault.New(fault.Invalid, "%q is no id of a volume", volume)
	}
	return s.make(ctx, s.VolumePath(ref, volume), cloning, agentapi.VolumeRoom(size))
}

// MakeCache creates an empty file system for the cache of a run's bucket, unless the run has it. It is found, and
// removed, like a volume.
func (s *Store) MakeCache(ctx context.Context, ref agentapi.LeaseRef, bucket string, size int64) error {
	if bucket == "" || strings.ContainsAny(bucket, "/"+volumeMark) {
		return fault.New(fault.Invalid, "%q is no id of a bucket", bucket)
	}
	return s.make(ctx, s.VolumePath(ref, bucket), cloning, agentapi.CacheRoom(size))
}

// ProblemNoVolumes is the code of a problem that prevents a host from offering volumes, and nothing else.
const ProblemNoVolumes = "volumes_not_usable"

// CheckVolumes returns what prevents volumes from being created here, or nil. It creates the smallest one, without a
// mount point, and releases it. It is called after Check.
func (s *Store) CheckVolumes(ctx context.Context) *agentapi.Problem {
	s.making.Lock()
	defer s.making.Unlock()
	bad := func(evidence error, fix string) *agentapi.Problem {
		return &agentapi.Problem{
			Code:     ProblemNoVolumes,
			Severity: "warn",
			Cause:    "Volumes cannot be made in the scratch folder: nodes with volumes are not placed here.",
			Evidence: strings.TrimPrefix(evidence.Error(), string(fault.Unavailable)+": "),
			Fix:      fix,
		}
	}
	if s.clones.Load() {
		return nil
	}
	if _, err := exec.LookPath(program(cloning.mkfs)); err != nil {
		return bad(err, "Install xfsprogs (apt install xfsprogs).")
	}
	err := onHost(func() error {
		return build(ctx, s.dir, cloning, agentapi.MinVolumeRoom, func(int) error { return nil })
	})
	switch {
	case err == nil:
		s.clones.Store(true)
		return nil
	case errors.Is(err, unix.ENODEV), errors.Is(err, unix.ENOENT):
		return bad(err, "Load the kernel's module: modprobe xfs.")
	case errors.Is(err, unix.ENOSPC):
		return bad(err, fmt.Sprintf("Make room on the disk: a volume takes %d MB at least.", agentapi.MinVolumeRoom>>20))
	}
	return bad(err, "Look into the kernel's log (dmesg) for what it says of the file system.")
}

// HoldsVolumes reports whether a volume could be created when CheckVolumes was last called. It does not wait.
func (s *Store) HoldsVolumes() bool { return s.clones.Load() }

// OnHost runs f where the mounts of this package are visible: in the mount namespace of the machine's first process. f
// must not start goroutines that look at mounts.
func OnHost(f func() error) error { return onHost(f) }
