package agent

import (
	"iter"
	"log/slog"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/musterhq/muster/agent/workload/cores"
	"github.com/musterhq/muster/internal/agentapi"
)

// runs are the runs of the host: what is wanted, recorded and reported of each.
type runs struct {
	disk   disk
	boot   string
	now    func() time.Time
	log    *slog.Logger
	report chan struct{} // a report is due

	mu     sync.Mutex // guards what follows, and the runs' fields
	leases map[string]*lease
	// begin starts a lease's worker; nil until the agent runs.
	begin func(*lease)
	// known: this process has accepted a desired state. scanned: Docker's list was read, and no read has failed since.
	known, scanned bool
}

// all visits every run. Callers hold runs.mu.
func (rs *runs) all() iter.Seq[*run] {
	return func(yield func(*run) bool) {
		for _, l := range rs.leases {
			for _, r := range l.runs {
				if !yield(r) {
					return
				}
			}
		}
	}
}

// here reports whether a run is known and not gone.
func (rs *runs) here(ref agentapi.LeaseRef) bool {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	r := rs.find(ref)
	return r != nil && !r.rec.Gone
}

// complete reports whether this process knows every run that the host has or should have.
func (rs *runs) complete() bool {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	return rs.known && rs.scanned
}

// find returns a run, or nil. Callers hold runs.mu.
func (rs *runs) find(ref agentapi.LeaseRef) *run {
	if l := rs.leases[ref.Lease]; l != nil {
		for _, r := range l.runs {
			if r.ref == ref {
				return r
			}
		}
	}
	return nil
}

// add adds a run to its lease, and starts the lease's worker if there is none. Callers hold runs.mu, or are New.
func (rs *runs) add(ref agentapi.LeaseRef, rec record) *run {
	l := rs.leases[ref.Lease]
	if l == nil {
		l = &lease{id: ref.Lease, kick: make(chan struct{}, 1)}
		rs.leases[ref.Lease] = l
	}
	i, found := slices.BinarySearchFunc(l.runs, ref.Epoch, func(r *run, epoch int) int { return r.ref.Epoch - epoch })
	if found {
		return l.runs[i]
	}
	r := &run{
		ref:    ref,
		files:  rs.disk.layout(ref),
		rec:    rec,
		looked: rec.Outcome != nil,
		egress: remembered(rec, rs.boot),
	}
	r.status = statusOf(ref, view{rec: rec, boot: rs.boot}, agentapi.Progress{})
	l.runs = slices.Insert(l.runs, i, r)
	if rs.begin != nil {
		rs.begin(l)
	}
	return r
}

// present lists the runs of this boot that are not gone, and that want holds for.
func (rs *runs) present(want func(agentapi.LeaseSpec) bool) (refs []agentapi.LeaseRef) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	for r := range rs.all() {
		now := r.rec.BootID == "" || r.rec.BootID == rs.boot
		if now && want(r.rec.Spec) && !r.rec.Gone {
			refs = append(refs, r.ref)
		}
	}
	return refs
}

// leased reports whether anything of a lease is on the host.
func (rs *runs) leased() bool {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	for _, l := range rs.leases {
		if slices.ContainsFunc(l.runs, func(r *run) bool { return !r.rec.Gone }) {
			return true
		}
	}
	return false
}

// leasedGPUs returns the GPUs that leases on the host may use, by UUID.
func (rs *runs) leasedGPUs() map[string]bool {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	out := map[string]bool{}
	for r := range rs.all() {
		if r.rec.Gone || r.rec.GPUsFree {
			continue
		}
		for _, uuid := range r.rec.Spec.GPUs {
			out[uuid] = true
		}
	}
	return out
}

// wantedGPUs returns the GPUs of leases that the server wants here, including those of which nothing is here yet.
func (rs *runs) wantedGPUs() map[string]bool {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	out := map[string]bool{}
	for r := range rs.all() {
		if r.want != nil && !r.rec.Gone {
			for _, uuid := range r.want.GPUs {
				out[uuid] = true
			}
		}
	}
	return out
}

// neighbourOf returns another run with a workload on this host, or "". A run whose containers are removed is none: its
// record stays until the server has taken note of its end.
func (rs *runs) neighbourOf(r *run) string {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	for o := range rs.all() {
		if o != r && o.rec.WorkID != "" && !o.rec.Down && !o.rec.Gone {
			return o.ref.String()
		}
	}
	return ""
}

// coresTaken returns the sets of all other runs whose containers may exist. Callers hold runs.mu.
func (rs *runs) coresTaken(but *run) []cores.Set {
	var out []cores.Set
	for r := range rs.all() {
		if r != but && r.rec.Cores != nil && !r.rec.Down && !r.rec.Gone {
			out = append(out, *r.rec.Cores)
		}
	}
	return out
}

// kick makes a lease's worker look at it again. The lease may have been forgotten while its report was being sent.
// Callers hold runs.mu.
func (rs *runs) kick(ref agentapi.LeaseRef) {
	if l := rs.leases[ref.Lease]; l != nil {
		poke(l.kick)
	}
}

// kickAll makes every worker look again.
func (rs *runs) kickAll() {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	for _, l := range rs.leases {
		poke(l.kick)
	}
}

// change alters a run's record, on the disk first.
func (rs *runs) change(r *run, f func(*record)) error {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	rec := r.rec
	f(&rec)
	if err := rs.disk.save(r.ref, rec); err != nil {
		return err
	}
	r.rec = rec
	return nil
}

// extend moves a run's authorised end. The new end is on the disk before it counts, so that an agent without a server
// stops the run in time, and not before. Callers hold runs.mu.
func (rs *runs) extend(r *run, untilMS int64) {
	if r.rec.Gone || r.rec.RunUntilMS == untilMS {
		return
	}
	r.rec.RunUntilMS = untilMS
	if err := rs.disk.save(r.ref, r.rec); err != nil {
		rs.log.Error("cannot write a lease's record", "lease", r.ref, "err", err)
	}
}

// overdraw makes a run's worker kill its command because it holds more than it may, and reports whether it will.
func (rs *runs) overdraw(r *run, what, why string) bool {
	rs.log.Warn(what, "lease", r.ref, "detail", why)
	if err := rs.change(r, func(rec *record) { rec.Overdrawn = clipped(why) }); err != nil {
		rs.log.Error("cannot write a lease's record", "lease", r.ref, "err", err)
		return false
	}
	rs.mu.Lock()
	rs.kick(r.ref)
	rs.mu.Unlock()
	return true
}

// setStatus changes a run's status and schedules its report: at once if the change is new information, including
// another step; if only a number or a cause of delay changed, no sooner than progressEvery after the last report and no
// later than that after the change. syncLoop decides how many reports are sent: each contains the state of all runs at
// that moment.
func (rs *runs) setStatus(r *run, f func(agentapi.LeaseStatus) agentapi.LeaseStatus) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	old, st := r.status, f(r.status)
	if reflect.DeepEqual(old, st) {
		return
	}
	r.status = st
	old.Progress, st.Progress = agentapi.Progress{Step: old.Progress.Step}, agentapi.Progress{Step: st.Progress.Step}
	if ago := rs.now().Sub(r.reportedAt); reflect.DeepEqual(old, st) && ago >= 0 && ago < progressEvery {
		if r.owed == nil {
			var owed *time.Timer
			owed = time.AfterFunc(progressEvery-ago, func() {
				rs.mu.Lock()
				defer rs.mu.Unlock()
				if r.owed == owed { // otherwise it was reported while this waited for the lock
					rs.wakeSync(r)
				}
			})
			r.owed = owed
		}
		return
	}
	rs.wakeSync(r)
}

// wakeSync makes syncLoop report a run's status. Callers hold runs.mu.
func (rs *runs) wakeSync(r *run) {
	if r.owed != nil {
		r.owed.Stop()
		r.owed = nil
	}
	r.reportedAt = rs.now()
	poke(rs.report)
}
