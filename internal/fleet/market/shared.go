package market

import (
	"context"
	"fmt"
	"regexp"
	"slices"

	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/fault"
)

// sharedShape is that of the names of shared file systems.
var sharedShape = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)

func isShared(m Mount) bool { return m.Shared != "" }

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

// CheckShared refuses mounts of shared file systems that are not declared. Call it outside of transactions.
// Fault: Invalid, with the field.
func CheckShared(ctx context.Context, q *dbq.Queries, mounts []Mount) error {
	names := sharedNames(mounts)
	if len(names) == 0 {
		return nil
	}
	have, err := q.SharedByName(ctx, names)
	if err != nil {
		return fmt.Errorf("read shared file systems: %w", err)
	}
	var bad fault.Fields
	for i, m := range mounts {
		if isShared(m) && !slices.Contains(have, m.Shared) {
			bad.Add(fmt.Sprintf("mounts[%d].shared", i), "no shared file system is called %s", m.Shared)
		}
	}
	return bad.Err()
}
