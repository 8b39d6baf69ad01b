package agent

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"github.com/musterhq/muster/agent/storage/bucket"
	"github.com/musterhq/muster/agent/storage/scratch"
	"github.com/musterhq/muster/agent/workload/container"
	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/id"
)

// bucketView is how a run's buckets are. Its zero value is that of a run without buckets.
type bucketView struct {
	mountView
	// uploading: something that was written is not in its store yet, or it is not known whether all of it is.
	uploading bool
	uploads   agentapi.Uploads
}

// bucketsOf mounts the buckets that a run needs, and returns how they are. made: their caches are there.
func (a *Agent) bucketsOf(v view, r *run, made bool) (out bucketView) {
	for _, b := range v.spec().Buckets {
		if made && v.wantsBuckets() {
			a.buckets.Want(bucket.Wanted{
				Ref: r.ref, Mount: b, Cache: scratch.Data(v.rec.Volumes[b.Bucket]), PID: workPID(v),
				Ended: v.rec.Outcome != nil && v.work.State != container.Running,
			})
		}
		st := a.buckets.State(r.ref, b.Bucket)
		out.add(fmt.Sprintf("the bucket %s at %s", b.Name, b.Path), st.Ready, st.Refused, st.Problem, st.ByHost)
		if b.Mode == agentapi.MountRW {
			out.uploading = out.uploading || !st.Uploaded
			out.uploads.Files += st.Files
			out.uploads.Bytes += st.Bytes
			if st.Uploading != "" && out.uploads.Problem == "" {
				out.uploads.Problem = clipped(fmt.Sprintf("bucket %s: %s", b.Name, st.Uploading))
			}
		}
	}
	return out
}

func workPID(v view) int {
	if v.work.State != container.Running {
		return 0
	}
	return v.work.PID
}

// wantsBuckets reports whether the buckets of a run are to be mounted: until its end, and after it while something may
// have to be uploaded.
func (v view) wantsBuckets() bool {
	if v.rec.BootID != "" && v.rec.BootID != v.boot {
		return false // the caches are gone
	}
	return v.rec.Outcome == nil || v.rec.Started && !v.rec.Flushed
}

// bucketPatience is how long a run waits for a bucket that cannot be mounted, or for a host that cannot mount anything.
const bucketPatience = 2 * time.Minute

// bucketStuck is how long after its grace a workload may still run before its buckets' requests are ended.
const bucketStuck = 3 * time.Second

// dataRoom is the file system of a volume, or of the cache of a bucket or a volume.
type dataRoom struct {
	size  int64 // bytes that its own files may take
	cache bool
}

// dataRooms returns the file systems that a run needs in the host's scratch, by the ids of volumes and buckets.
func dataRooms(spec agentapi.LeaseSpec) map[string]dataRoom {
	out := map[string]dataRoom{}
	for _, m := range spec.Mounts {
		out[m.Volume] = dataRoom{size: m.SizeLimit}
	}
	for _, b := range spec.Buckets {
		out[b.Bucket] = dataRoom{size: b.CacheBytes, cache: true}
	}
	for _, m := range spec.Lazy {
		out[m.Volume] = dataRoom{size: m.CacheBytes, cache: true}
	}
	return out
}

// supersededFlush is how long the run before a newer epoch may go on to upload: the newer one waits for it.
const supersededFlush = time.Minute

// lostUploads returns what of a run's buckets is not in their stores.
func (a *Agent) lostUploads(r *run, v view, why string) (out []agentapi.NotUploaded) {
	for _, b := range v.spec().Buckets {
		st := a.buckets.State(r.ref, b.Bucket)
		if b.Mode != agentapi.MountRW || st.Uploaded {
			continue
		}
		if st.Uploading != "" {
			why = st.Uploading
		}
		if st.Problem != "" {
			why = st.Problem
		}
		if st.Refused != "" {
			why = st.Refused
		}
		out = append(out, agentapi.NotUploaded{Bucket: b.Bucket, Name: b.Name, Detail: clipped(why),
			Uploads: agentapi.Uploads{Files: st.Files, Bytes: st.Bytes}})
	}
	return out
}

// uploadsEvery is the shortest time between reports of what is not uploaded yet, of which there may be something new
// all the time.
const uploadsEvery = 10 * time.Second

// uploadsToReport returns what to report of a running node's uploads: at once whether there is anything, and how much
// it is from time to time. Callers hold a.mu.
func (r *run) uploadsToReport(v view, now time.Time) *agentapi.Uploads {
	u := v.buckets.uploads
	if u == (agentapi.Uploads{}) {
		return nil
	}
	if before := r.status.Progress.Uploads; before != nil && now.Sub(r.uploadsAt) < uploadsEvery {
		return before
	}
	r.uploadsAt = now
	return &u
}

// bucketBinds returns what a workload's container mounts of its buckets.
func (a *Agent) bucketBinds(ref agentapi.LeaseRef, v view) (out []container.Bind) {
	for _, b := range v.spec().Buckets {
		out = append(out, container.Bind{
			Source: a.buckets.Point(ref, b.Bucket), Target: b.Path, ReadOnly: b.Mode == agentapi.MountRO,
		})
	}
	return out
}

// bucketDir is where the buckets of a host are mounted. It is not in the state folder, which is removed recursively.
func bucketDir(host id.Host) string {
	return filepath.Join("/run/muster-agent", container.Host8(host), "buckets")
}

// newBuckets returns the mounts of the host's buckets.
func (a *Agent) newBuckets() *bucket.Mounts {
	return bucket.New(bucket.Config{
		Dir: bucketDir(a.cfg.Host), Program: a.cfg.MountProgram, AnyAddress: a.cfg.AnyStore, Confine: a.confine,
		Log: a.log, Changed: a.kickAll,
	})
}

// offersBuckets reports whether nodes with buckets can run here.
func (a *Agent) offersBuckets() bool {
	return a.cfg.Scratch != nil && a.cfg.Scratch.HoldsVolumes() && a.buckets.Usable() &&
		a.mountProbe.ok(context.Background())
}

// sweepBuckets ends mounts that belong to no known run. It is called once.
func (a *Agent) sweepBuckets(ctx context.Context) {
	err := a.buckets.Sweep(ctx, func(ref agentapi.LeaseRef) bool {
		a.mu.Lock()
		defer a.mu.Unlock()
		r := a.find(ref)
		return r != nil && !r.rec.Gone
	})
	if err != nil && !errors.Is(err, context.Canceled) {
		a.log.Warn("buckets of former leases are left mounted", "err", err)
	}
}

// hasData reports whether a run has volumes or buckets.
func hasData(spec agentapi.LeaseSpec) bool {
	return len(spec.Mounts)+len(spec.Buckets)+len(spec.Lazy) > 0
}

// knowsBuckets reports whether something of a run's buckets can still be uploaded.
func (a *Agent) knowsBuckets(ref agentapi.LeaseRef, v view) bool {
	return slices.ContainsFunc(v.spec().Buckets, func(b agentapi.BucketMount) bool {
		return a.buckets.Known(ref, b.Bucket) || a.buckets.State(ref, b.Bucket).Ready
	})
}
