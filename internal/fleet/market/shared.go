package market

import (
	"regexp"

	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/fault"
)

// sharedShape is that of the names of shared file systems.
var sharedShape = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)

// sharedNames returns the shared file systems that mounts name.
func sharedNames(mounts []Mount) (out []string) {
	for _, m := range mounts {
		if isShared(m) {
			out = append(out, m.Shared)
		}
	}
	return out
}

func (s Spec) checkShared(m Mount, at string, bad *fault.Fields) {
	if !m.Volume.IsZero() || isBucket(m) {
		bad.Add(at+".shared", "name a volume, a bucket or a shared file system, not several")
	}
	if !sharedShape.MatchString(m.Shared) {
		bad.Add(at+".shared", "want the name of a shared file system: lower-case letters, digits and dashes")
	}
	oneOf(bad, at+".mode", m.Mode, agentapi.MountRW, agentapi.MountRO)
	switch {
	case m.Lazy:
		bad.Add(at+".lazy", "is for volumes only")
	case m.CacheGB != 0:
		bad.Add(at+".cache_gb", "is for buckets and lazy volumes only")
	}
	if m.Snapshot != (SnapshotPolicy{}) {
		bad.Add(at+".snapshot", "is for volumes only")
	}
	if m.Pause != "" {
		bad.Add(at+".pause", "is for volumes only")
	}
	if s.Runtime == "runsc" {
		bad.Add(at+".shared", "cannot be mounted with runtime runsc")
	}
}
