package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"time"

	"github.com/musterhq/muster/agent/storage/bucket"
	"github.com/musterhq/muster/agent/storage/lazy"
	"github.com/musterhq/muster/agent/storage/scratch"
	"github.com/musterhq/muster/agent/storage/volume"
	"github.com/musterhq/muster/agent/workload/container"
	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/id"
)

// mounts are the buckets and the lazily read volumes that the host mounts for runs.
type mounts struct {
	buckets *bucket.Mounts
	lazies  *lazy.Mounts   // volumes that are read on demand
	scratch *scratch.Store // nil: the host offers none
	runs    *runs
	log     *slog.Logger
	probe   mountProbe
}

func newMounts(cfg Config, rs *runs, n *network, server volume.Server) *mounts {
	return &mounts{
		buckets: bucket.New(bucket.Config{
			Dir: bucketDir(cfg.Host), Program: cfg.MountProgram, AnyAddress: cfg.AnyStore, Confine: n.confine,
			Log: cfg.Log, Changed: rs.kickAll,
		}),
		lazies: lazy.New(lazy.Config{
			Dir: lazyDir(cfg.Host), Program: cfg.MountProgram, Server: server, Env: storeEnv(),
			Confine: n.confine, Log: cfg.Log, Changed: rs.kickAll,
		}),
		scratch: cfg.Scratch, runs: rs, log: cfg.Log,
	}
}

// interrupt ends what a run's workload waits for in its mounts.
func (ms *mounts) interrupt(ref agentapi.LeaseRef) {
	ms.buckets.Interrupt(ref)
	ms.lazies.Interrupt(ref)
}

// detach unmounts a run's mounts.
func (ms *mounts) detach(ctx context.Context, ref agentapi.LeaseRef) error {
	return errors.Join(ms.buckets.Detach(ctx, ref), ms.lazies.Detach(ctx, ref))
}

func (ms *mounts) close() {
	ms.buckets.Close()
	ms.lazies.Close()
}

// bucketView is how a run's buckets are. Its zero value is that of a run without buckets.
type bucketView struct {
	mountView
	// uploading: something that was written is not in its store yet, or it is not known whether all of it is.
	uploading bool
	uploads   agentapi.Uploads
}

// bucketsOf mounts the buckets that a run needs, and returns how they are. made: their caches are there.
func (ms *mounts) bucketsOf(v view, r *run, made bool) (out bucketView) {
	for _, b := range v.spec().Buckets {
		if made && v.wantsBuckets() {
			ms.buckets.Want(bucket.Wanted{
				Ref: r.ref, Mount: b, Cache: scratch.Data(v.rec.Volumes[b.Bucket]), PID: workPID(v),
				Ended: v.rec.Outcome != nil && v.work.State != container.Running,
			})
		}
		st := ms.buckets.State(r.ref, b.Bucket)
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

// uploadsEvery is the shortest time between reports of what is not uploaded yet, of which there may be something new
// all the time.
const uploadsEvery = 10 * time.Second

// uploadsToReport returns what to report of a running node's uploads: at once whether there is anything, and how much
// it is from time to time. Callers hold runs.mu.
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
func (ms *mounts) bucketBinds(ref agentapi.LeaseRef, v view) (out []container.Bind) {
	for _, b := range v.spec().Buckets {
		out = append(out, container.Bind{
			Source: ms.buckets.Point(ref, b.Bucket), Target: b.Path, ReadOnly: b.Mode == agentapi.MountRO,
		})
	}
	return out
}

// bucketDir is where the buckets of a host are mounted. It is not in the state folder, which is removed recursively.
func bucketDir(host id.Host) string {
	return filepath.Join("/run/muster-agent", container.Host8(host), "buckets")
}

// offered reports whether nodes with buckets can run here.
func (ms *mounts) offered() bool {
	return ms.scratch != nil && ms.scratch.HoldsVolumes() && ms.buckets.Usable() &&
		ms.probe.ok(context.Background())
}

// sweepBuckets ends mounts that belong to no known run. It is called once.
func (ms *mounts) sweepBuckets(ctx context.Context) {
	err := ms.buckets.Sweep(ctx, ms.runs.here)
	if err != nil && !errors.Is(err, context.Canceled) {
		ms.log.Warn("buckets of former leases are left mounted", "err", err)
	}
}

// hasData reports whether a run has volumes or buckets.
func hasData(spec agentapi.LeaseSpec) bool {
	return len(spec.Mounts)+len(spec.Buckets)+len(spec.Lazy) > 0
}

// knowsBuckets reports whether something of a run's buckets can still be uploaded.
func (ms *mounts) knowsBuckets(ref agentapi.LeaseRef, v view) bool {
	return slices.ContainsFunc(v.spec().Buckets, func(b agentapi.BucketMount) bool {
		return ms.buckets.Known(ref, b.Bucket) || ms.buckets.State(ref, b.Bucket).Ready
	})
}

// lostUploads returns what of a run's buckets is not in their stores.
func (ms *mounts) lostUploads(r *run, v view, why string) (out []agentapi.NotUploaded) {
	for _, b := range v.spec().Buckets {
		st := ms.buckets.State(r.ref, b.Bucket)
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
