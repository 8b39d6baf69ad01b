package market

import (
	"encoding/json"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/fault"
)

// Limits of the mounts of a spec.
const (
	MaxMounts        = 16
	MinSnapshotEvery = 60 // seconds
	MaxSnapshotEvery = 24 * 3600
	maxMountPath     = 255 // bytes
	DefaultCacheGB   = 10  // of a bucket or a lazy volume
	maxCacheGB       = 500
)

// decodeMounts decodes the mounts of a spec. A snapshot is taken at the end and on notice unless the spec says
// otherwise.
func decodeMounts(b []byte, at string, bad *fault.Fields) []Mount {
	var items []json.RawMessage
	if json.Unmarshal(b, &items) != nil {
		bad.Add(at, "want a list of mounts")
		return nil
	}
	out := make([]Mount, len(items))
	for i, item := range items {
		m := &out[i]
		m.Mode = agentapi.MountRW
		m.Snapshot = SnapshotPolicy{OnNotice: true, OnEnd: true}
		where := fmt.Sprintf("%s[%d]", at, i)
		decodeObject(item, where, map[string]any{
			"path": &m.Path, "volume": &m.Volume, "bucket": &m.Bucket, "shared": &m.Shared, "mode": &m.Mode,
			"pause": &m.Pause, "cache_gb": &m.CacheGB, "lazy": &m.Lazy,
			"snapshot": decodeFunc(func(b []byte, at string) {
				decodeObject(b, at, map[string]any{
					"every_s": &m.Snapshot.EveryS, "on_notice": &m.Snapshot.OnNotice, "on_end": &m.Snapshot.OnEnd,
				}, nil, bad)
			}),
		}, nil, bad)
		if !isVolume(*m) && m.Snapshot == (SnapshotPolicy{OnNotice: true, OnEnd: true}) { // nothing was said
			m.Snapshot = SnapshotPolicy{}
		}
		if (isBucket(*m) || m.Lazy) && m.CacheGB == 0 {
			m.CacheGB = DefaultCacheGB
		}
	}
	return out
}

// reservedPaths are the folders of a container that a mount must not hide, nor be inside of.
var reservedPaths = []string{"/proc", "/sys", "/dev", "/run", "/etc", "/bin", "/sbin", "/lib", "/lib64", "/usr/bin",
	"/usr/lib", agentapi.ScratchPath}

func (s Spec) checkMounts(bad *fault.Fields) {
	if len(s.Mounts) > MaxMounts {
		bad.Add("mounts", "at most %d", MaxMounts)
		return
	}
	for i, m := range s.Mounts {
		at := fmt.Sprintf("mounts[%d]", i)
		if why := badMountPath(m.Path); why != "" {
			bad.Add(at+".path", "%s", why)
		}
		switch {
		case isShared(m):
			s.checkShared(m, at, bad)
		case isBucket(m):
			s.checkBucket(m, at, bad)
		default:
			s.checkVolume(m, at, bad)
		}
		for j, o := range s.Mounts[:i] {
			if inside(m.Path, o.Path) || inside(o.Path, m.Path) {
				bad.Add(at+".path", "is inside of mounts[%d].path, or the other way round", j)
			}
			if m.Volume == o.Volume && !m.Volume.IsZero() {
				bad.Add(at+".volume", "is listed twice")
			}
			if m.Bucket == o.Bucket && !m.Bucket.IsZero() {
				bad.Add(at+".bucket", "is listed twice")
			}
			if m.Shared == o.Shared && isShared(m) {
				bad.Add(at+".shared", "is listed twice")
			}
		}
	}
}

func (s Spec) checkVolume(m Mount, at string, bad *fault.Fields) {
	if m.Volume.IsZero() {
		bad.Add(at+".volume", "name a volume, vol_…, a bucket, bkt_…, or a shared file system")
	}
	oneOf(bad, at+".mode", m.Mode, agentapi.MountRW, agentapi.MountRO, agentapi.MountRanks)
	if m.Mode == agentapi.MountRW && s.Nodes > 1 {
		bad.Add(at+".mode", "a volume with mode rw has one writer: for several nodes use ranks or ro")
	}
	if e := m.Snapshot.EveryS; e != 0 {
		between(bad, at+".snapshot.every_s", int64(e), MinSnapshotEvery, MaxSnapshotEvery)
	}
	if m.Pause != "" {
		oneOf(bad, at+".pause", m.Pause, "never")
	}
	switch {
	case m.Lazy:
		s.checkLazy(m, at, bad)
	case m.CacheGB != 0:
		bad.Add(at+".cache_gb", "is for buckets and lazy volumes only")
	}
}

// checkLazy checks a volume that is read on demand.
func (s Spec) checkLazy(m Mount, at string, bad *fault.Fields) {
	if m.Mode != agentapi.MountRO {
		bad.Add(at+".lazy", "needs mode ro: a volume that is written is restored before the start")
	}
	between(bad, at+".cache_gb", m.CacheGB, 1, maxCacheGB)
	if s.Runtime == "runsc" {
		bad.Add(at+".lazy", "cannot be mounted with runtime runsc")
	}
}

func (s Spec) checkBucket(m Mount, at string, bad *fault.Fields) {
	if !m.Volume.IsZero() {
		bad.Add(at+".bucket", "name a volume or a bucket, not both")
	}
	oneOf(bad, at+".mode", m.Mode, agentapi.MountRW, agentapi.MountRO)
	between(bad, at+".cache_gb", m.CacheGB, 1, maxCacheGB)
	if m.Snapshot != (SnapshotPolicy{}) {
		bad.Add(at+".snapshot", "is for volumes only")
	}
	if m.Pause != "" {
		bad.Add(at+".pause", "is for volumes only")
	}
	if m.Lazy {
		bad.Add(at+".lazy", "is for volumes only: a bucket is always read when it is needed")
	}
	if s.Runtime == "runsc" {
		bad.Add(at+".bucket", "cannot be mounted with runtime runsc")
	}
}

func badMountPath(p string) string {
	switch {
	case !path.IsAbs(p) || path.Clean(p) != p || p == "/" || len(p) > maxMountPath || !printable(p):
		return "want an absolute path such as /data, without . and .. and other than /"
	case slices.ContainsFunc(reservedPaths, func(r string) bool { return inside(p, r) || inside(r, p) }):
		return "hides or lies in a folder of the system: want one such as /data"
	}
	return ""
}

// inside reports whether p is the folder dir or lies in it.
func inside(p, dir string) bool { return p == dir || strings.HasPrefix(p, dir+"/") }
