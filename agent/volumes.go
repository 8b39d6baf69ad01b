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

// look sends the process for volumes what a run needs now, and returns the state of the run's volumes.
func (s *storage) look(v view, r *run) (out volumeView, err error) {
	ref := r.ref
	mounts := v.spec().Mounts
	if !hasData(v.spec()) {
		return volumeView{made: true, restored: true, closed: true}, nil
	}
	if out.made, err = s.made(v); err != nil {
		return out, err
	}
	out.restored, out.closed = out.made, true
	for _, m := range mounts {
		if out.made {
			s.attach(v, r, m)
		}
		st := s.client.State(ref, m.Volume)
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
		s.selves.serve(r, v) // for a workload that an agent before this one has started
	}
	return out, nil
}

// made reports whether the file systems of a run's volumes and of its buckets' caches are mounted. It does not
// check those of a workload that runs.
func (s *storage) made(v view) (bool, error) {
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

// attach sends the process for volumes how one should be attached. Without its key, after a restart of the agent
// and until the server has answered, it sends nothing.
func (s *storage) attach(v view, r *run, m agentapi.Mount) {
	ref := r.ref
	at, known := s.client.Wanted(ref, m.Volume)
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
	if !known && !s.mayRestore(v, r) {
		return
	}
	at.Limits = line.Limits{UpMbps: s.caps.UpMbps, DownMbps: s.caps.DownMbps}
	at.Moved = r.files.VolumesMoved
	at.Peers = peersOf(v, at.Peers)
	at.Ref, at.Root, at.PID = ref, v.rec.Volumes[m.Volume], 0
	if v.work.State == container.Running {
		at.PID = v.work.PID
	}
	at.Notice = v.limited && v.left <= noticeBefore && v.rec.Started
	at.Announced = v.leaving != ""
	at.Ended = v.rec.Outcome != nil && v.work.State != container.Running
	s.client.Want(at)
}

// mayRestore reports whether the restore of a run's volumes may begin: once the ranks have measured the network, with
// which a restore would interfere, they can exchange what they restore.
func (s *storage) mayRestore(v view, r *run) bool {
	if v.spec().Nodes <= 1 || v.begun() || v.rec.Outcome != nil || v.work.State == container.Running {
		return true
	}
	s.runs.mu.Lock()
	defer s.runs.mu.Unlock()
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
func (s *storage) makeVolumes(ctx context.Context, r *run, v view) error {
	store := s.scratch
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
			if err := s.runs.change(r, func(rec *record) {
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

// restore waits for the restore of a run's volumes and shows how far it is.
func (s *storage) restore(r *run, v view) (time.Duration, error) {
	if v.volumes.problem != "" {
		return 0, fault.New(fault.Unavailable, "%s", clipped(v.volumes.problem))
	}
	s.runs.setStatus(r, func(st agentapi.LeaseStatus) agentapi.LeaseStatus {
		st.Progress = agentapi.Progress{Step: "restore", Done: v.volumes.done, Total: v.volumes.total}
		return st
	})
	return watchEvery / 4, nil
}

func (s *storage) attachedAny(ref agentapi.LeaseRef, v view) bool {
	return slices.ContainsFunc(v.spec().Mounts, func(m agentapi.Mount) bool {
		_, ok := s.client.Wanted(ref, m.Volume)
		return ok
	})
}

// dropVolumes removes a run's volumes from the host, at the locations in its record and, in case the record is lost,
// at the default ones.
func (s *storage) dropVolumes(ctx context.Context, r *run, v view) error {
	paths := slices.Collect(maps.Values(v.rec.Volumes))
	if s.scratch != nil {
		for id := range dataRooms(v.spec()) {
			paths = append(paths, s.scratch.VolumePath(r.ref, id))
		}
	}
	if len(paths) == 0 && !hasMounts(v.spec()) {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	errs := []error{s.client.Detach(ctx, r.ref), s.mounts.detach(ctx, r.ref)}
	s.network.countVolumes(r.ref)
	if hasMounts(v.spec()) {
		errs = append(errs, s.network.endMounts(ctx, r.ref))
	}
	for _, p := range paths {
		errs = append(errs, scratch.Release(p))
	}
	return errors.Join(errs...)
}
