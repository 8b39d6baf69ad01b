package agent

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/musterhq/muster/agent/net/line"
	"github.com/musterhq/muster/agent/net/peers"
	"github.com/musterhq/muster/agent/storage/scratch"
	"github.com/musterhq/muster/agent/storage/snapd"
	"github.com/musterhq/muster/agent/workload/container"
	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/fault"
)

// volumeView is how a run's volumes are.
type volumeView struct {
	made       bool   // their file systems are mounted, or it is too late to check
	restored   bool   // all have their data
	refused    string // why one cannot be attached, for good; "" = none
	fenced     bool   // one is written elsewhere
	unreadable bool   // what was stored of one cannot be restored anywhere
	problem    string // why one is not restored yet
	done       int64  // bytes of all restores
	total      int64
	closed     bool   // after the run's end, nothing more will be committed
	lost       string // why a running workload can no longer write to one; "" while it can
	label      string // of the snapshot that was restored
}

// volumesOf sends the process for volumes what a run needs now, and returns the state of the run's volumes.
func (a *Agent) volumesOf(v view, r *run) (out volumeView, err error) {
	ref := r.ref
	mounts := v.spec().Mounts
	if !hasData(v.spec()) {
		return volumeView{made: true, restored: true, closed: true}, nil
	}
	if out.made, err = a.volumesMade(v); err != nil {
		return out, err
	}
	out.restored, out.closed = out.made, true
	for _, m := range mounts {
		if out.made {
			a.attachVolume(v, r, m)
		}
		st := a.volumes.State(ref, m.Volume)
		out.restored = out.restored && st.Restored
		out.closed = out.closed && st.Closed
		out.fenced, out.unreadable = out.fenced || st.Fenced, out.unreadable || st.Unreadable
		out.done, out.total = out.done+st.Done, out.total+st.Total
		if st.Refused != "" && out.refused == "" {
			out.refused = fmt.Sprintf("volume %s: %s", m.Name, st.Refused)
		}
		if st.Problem != "" && out.problem == "" {
			out.problem = fmt.Sprintf("volume %s: %s", m.Name, st.Problem)
		}
		if out.label == "" {
			out.label = st.Label
		}
	}
	if v.rec.Started && v.rec.Outcome == nil {
		out.lost = lostVolume(v)
	}
	if v.work.State == container.Running {
		a.serveSelf(r, v) // for a workload that an agent before this one has started
	}
	return out, nil
}

// volumesMade reports whether the file systems of a run's volumes and of its buckets' caches are mounted. It does not
// check those of a workload that runs.
func (a *Agent) volumesMade(v view) (bool, error) {
	if v.work.State == container.Running || v.rec.Outcome != nil {
		return true, nil
	}
	for id := range dataRooms(v.spec()) {
		path := v.rec.Volumes[id]
		if path == "" {
			return false, nil
		}
		if there, err := scratch.Ready(path); err != nil || !there {
			return false, err
		}
	}
	return true, nil
}

// attachVolume sends the process for volumes how one should be attached. Without its key, after a restart of the agent
// and until the server has answered, it sends nothing.
func (a *Agent) attachVolume(v view, r *run, m agentapi.Mount) {
	ref := r.ref
	at, known := a.volumes.Wanted(ref, m.Volume)
	if len(m.Key) == 0 {
		m.Key = v.keys[m.Volume]
	}
	if len(m.Key) > 0 {
		at.Mount = m
	} else if !known {
		return
	}
	if v.rec.Outcome != nil && (!v.rec.Started || v.rec.Flushed || v.superseded) && !known {
		return // nothing of the run's is to be kept
	}
	if !known && !a.mayRestore(v, r) {
		return
	}
	at.Limits = line.Limits{UpMbps: a.cfg.Caps.UpMbps, DownMbps: a.cfg.Caps.DownMbps}
	at.Moved = r.files.VolumesMoved
	at.Peers = peersOf(v, at.Peers)
	at.Ref, at.Root, at.PID = ref, v.rec.Volumes[m.Volume], 0
	if v.work.State == container.Running {
		at.PID = v.work.PID
	}
	left, limited := a.authorised(v.rec)
	at.Notice = limited && left <= noticeBefore && v.rec.Started
	at.Announced = a.leaving(v) != ""
	at.Ended = v.rec.Outcome != nil && v.work.State != container.Running
	a.volumes.Want(at)
}

// mayRestore reports whether the restore of a run's volumes may begin: once the ranks have measured the network, with
// which a restore would interfere, they can exchange what they restore.
func (a *Agent) mayRestore(v view, r *run) bool {
	if v.spec().Nodes <= 1 || v.begun() || v.rec.Outcome != nil || v.work.State == container.Running {
		return true
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return v.rec.Preflight != nil && v.rec.Preflight.OK && r.overlay != nil
}

// peersOf returns the ranks with which a run exchanges what it restores; nil once anything of the renter's may run,
// which begins when all ranks have restored. before is what they were: a guest that is started again moves them.
func peersOf(v view, before *peers.Cluster) *peers.Cluster {
	spec := v.spec()
	switch {
	case spec.Nodes <= 1, v.begun(), v.rec.Outcome != nil:
		return nil
	case v.guest.State != container.Running:
		return before
	}
	c := &peers.Cluster{NetNS: v.guest.NetNS(), Rank: spec.Rank,
		Ranks: []peers.Rank{{Rank: spec.Rank, Address: spec.Network.Address}}}
	for _, p := range spec.Network.Peers {
		c.Ranks = append(c.Ranks, peers.Rank{Rank: p.Rank, Address: p.Address})
	}
	slices.SortFunc(c.Ranks, func(a, b peers.Rank) int { return a.Rank - b.Rank })
	return c
}

// noticeBefore is how long before the end of the authorised time a snapshot on notice begins.
const noticeBefore = 2 * time.Minute

// lostVolume is lostScratch for volumes.
func lostVolume(v view) string {
	for _, id := range slices.Sorted(maps.Keys(v.rec.Volumes)) {
		if why, err := scratch.Lost(v.rec.Volumes[id]); err == nil && why != "" {
			return why
		}
	}
	return ""
}

// makeVolumes makes the file systems of a run's volumes and of its buckets' caches. Their locations are written to the
// disk first.
func (a *Agent) makeVolumes(ctx context.Context, r *run, v view) error {
	store := a.cfg.Scratch
	if store == nil || !store.HoldsVolumes() {
		return container.Refusal{Reason: agentapi.ReasonNotOffered, Detail: "this host cannot hold volumes any more"}
	}
	for id, room := range dataRooms(v.spec()) {
		path := store.VolumePath(r.ref, id)
		if old := v.rec.Volumes[id]; old != path {
			if old != "" { // the operator has configured another folder
				if err := scratch.Release(old); err != nil {
					return err
				}
			}
			if err := a.change(r, func(rec *record) {
				rec.Volumes = maps.Clone(rec.Volumes)
				if rec.Volumes == nil {
					rec.Volumes = map[string]string{}
				}
				rec.Volumes[id] = path
			}); err != nil {
				return err
			}
		}
		create := store.MakeVolume
		if room.cache {
			create = store.MakeCache
		}
		if err := create(ctx, r.ref, id, room.size); err != nil {
			return err
		}
	}
	return nil
}

// restorePatience is how long a run waits for a volume that cannot be restored.
const restorePatience = 10 * time.Minute

// restoreVolumes waits for the restore of a run's volumes and shows how far it is.
func (a *Agent) restoreVolumes(r *run, v view) (time.Duration, error) {
	if v.volumes.problem != "" {
		return 0, fault.New(fault.Unavailable, "%s", clipped(v.volumes.problem))
	}
	a.setStatus(r, func(st agentapi.LeaseStatus) agentapi.LeaseStatus {
		st.Progress = agentapi.Progress{Step: "restore", Done: v.volumes.done, Total: v.volumes.total}
		return st
	})
	return watchEvery / 4, nil
}

// bindsOf returns what a workload's container mounts of its volumes.
func bindsOf(v view) (out []container.Bind) {
	for _, m := range v.spec().Mounts {
		out = append(out, container.Bind{
			Source: scratch.Data(v.rec.Volumes[m.Volume]), Target: m.Path, ReadOnly: m.Mode == agentapi.MountRO,
		})
	}
	return out
}

// flush waits until what a run's volumes have that is not durable yet is committed and their sessions are closed, and
// until its buckets are uploaded: after its end, for a time that is bounded.
func (a *Agent) flush(ctx context.Context, r *run, v view) (time.Duration, error) {
	over := func(why string) (time.Duration, error) {
		if why != "" {
			a.log.Warn("a volume keeps what was last committed", "lease", r.ref, "reason", why)
		}
		var lost []agentapi.NotUploaded
		if v.rec.Started && v.buckets.uploading { // after a restart of the host all that was not uploaded is lost
			lost = a.lostUploads(r, v, why)
			a.log.Warn("not all of the buckets was uploaded", "lease", r.ref, "reason", why, "buckets", len(lost))
		}
		return 0, a.change(r, func(rec *record) { rec.Flushed, rec.NotUploaded = true, lost })
	}
	waited := a.cfg.BootMS() - v.rec.FlushBoot
	switch {
	case !v.rec.Started, v.superseded && !v.buckets.uploading:
		return over("")
	case v.volumes.closed && !v.buckets.uploading:
		return over(v.volumes.refused)
	case v.rec.BootID != v.boot:
		return over("the host was restarted")
	case v.rec.FlushBoot == 0:
		return 0, a.change(r, func(rec *record) { rec.FlushBoot = a.cfg.BootMS() })
	case waited > agentapi.VolumeFlushMaxS*1000, v.superseded && waited > supersededFlush.Milliseconds():
		return over("the time for it is over")
	case v.dismissed && !a.attachedAny(r.ref, v) && !a.knowsBuckets(r.ref, v):
		return over("the agent was restarted, and the lease's keys are gone")
	case a.flushStuck(ctx, r, v) && v.volumes.closed:
		return over("nothing was uploaded any more")
	}
	a.setStatus(r, func(st agentapi.LeaseStatus) agentapi.LeaseStatus {
		st.Progress.WaitingFor = "the last snapshot of the node's volumes is being stored"
		if v.volumes.closed {
			st.Progress.WaitingFor = "the node's buckets are being uploaded"
		}
		st.Progress.Uploads = r.uploadsToReport(v, a.cfg.Now())
		return st
	})
	return watchEvery / 4, nil
}

func (a *Agent) attachedAny(ref agentapi.LeaseRef, v view) bool {
	return slices.ContainsFunc(v.spec().Mounts, func(m agentapi.Mount) bool {
		_, ok := a.volumes.Wanted(ref, m.Volume)
		return ok
	})
}

// dropVolumes removes a run's volumes from the host, at the locations in its record and, in case the record is lost,
// at the default ones.
func (a *Agent) dropVolumes(ctx context.Context, r *run, v view) error {
	paths := slices.Collect(maps.Values(v.rec.Volumes))
	if a.cfg.Scratch != nil {
		for id := range dataRooms(v.spec()) {
			paths = append(paths, a.cfg.Scratch.VolumePath(r.ref, id))
		}
	}
	if len(paths) == 0 && !hasMounts(v.spec()) {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	errs := []error{a.volumes.Detach(ctx, r.ref), a.buckets.Detach(ctx, r.ref),
		a.lazies.Detach(ctx, r.ref)}
	a.countVolumes(r.ref)
	if hasMounts(v.spec()) {
		errs = append(errs, a.endMounts(ctx, r.ref))
	}
	for _, p := range paths {
		errs = append(errs, scratch.Release(p))
	}
	return errors.Join(errs...)
}

// sendVolume passes a request of the process for volumes to the control plane. Moments are on the clock of the host's
// boot there.
func (a *Agent) sendVolume(ctx context.Context, q agentapi.VolumeRequest) (agentapi.VolumeReply, error) {
	if q.Commit != nil || q.Prepare != nil {
		anchor, ok := a.journal.Anchor()
		if !ok {
			return agentapi.VolumeReply{}, fault.New(fault.Unavailable, "the server's clock is not known yet")
		}
		if q.Commit != nil {
			c := *q.Commit
			c.CutAtMS = anchor.At(c.CutAtMS)
			q.Commit = &c
		}
		if q.Prepare != nil {
			p := *q.Prepare
			p.CutAtMS = anchor.At(p.CutAtMS)
			q.Prepare = &p
		}
	}
	reply, err := a.cfg.Link.Volume(ctx, q)
	var refused *agentapi.VolumeError
	var many *agentapi.TooMany
	switch {
	case errors.As(err, &refused):
		return agentapi.VolumeReply{Error: refused}, nil
	case errors.As(err, &many):
		return agentapi.VolumeReply{AckError: "too many requests", RetryMS: max(1, many.Wait.Milliseconds())}, nil
	}
	return reply, err
}

// newVolumes returns the agent's side of the process for volumes.
func (a *Agent) newVolumes(dir string) *snapd.Client {
	return snapd.NewClient(snapd.Config{
		Dir: dir, Command: a.cfg.SnapdCommand, Server: a.sendVolume, Log: a.log, Changed: a.kickAll,
	})
}
