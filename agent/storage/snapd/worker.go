package snapd

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"slices"
	"sync"
	"time"

	"github.com/musterhq/muster/agent/net/line"
	"github.com/musterhq/muster/agent/net/peers"
	"github.com/musterhq/muster/agent/storage/checkpoint"
	"github.com/musterhq/muster/agent/storage/volume"
	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/data/chunk"
)

const (
	roomEvery   = 500 * time.Millisecond // between looks at a volume's room
	reportEvery = 5 * time.Second
	reportLeast = 10 * time.Minute // however little changes: it keeps the session alive
	peekEvery   = 30 * time.Second // between looks at what has changed
	// leastApart is the shortest time between the beginnings of two snapshots: the control plane takes no more.
	leastApart = 11 * time.Second
	retryFirst = time.Second
	retryLast  = time.Minute
	// keptCheckpoints is how many ended checkpoints can still be looked up.
	keptCheckpoints = 64
	maxWaiting      = 16 // checkpoints that wait at once
)

// A worker is one attached volume.
type worker struct {
	d      *daemon
	line   *line.Line // of the run
	ctx    context.Context
	cancel context.CancelFunc
	over   chan struct{} // closed when nothing is open any more
	kick   chan struct{}

	mu        sync.Mutex
	wanted    Attached
	state     State
	v         *volume.Volume // once it is restored
	requester *volume.Volume // the one that sends requests: v, or one that is being restored
	peers     *peers.Group   // nil: the volume is not exchanged with other ranks, or no more
	done      string         // the last SnapshotNow that was served
	jobs      []*job         // in the order of their arrival
	closed    bool

	// The snapshot on this notice was taken.
	notice, announced bool
}

// A job is a checkpoint.
type job struct {
	checkpoint.Request
	state checkpoint.State
}

func newWorker(d *daemon, a Attached, l *line.Line) *worker {
	w := &worker{d: d, line: l, over: make(chan struct{}), kick: make(chan struct{}, 1), wanted: a,
		state: State{Ref: a.Ref, Volume: a.Mount.Volume}}
	w.ctx, w.cancel = context.WithCancel(context.Background())
	go w.run()
	return w
}

func (w *worker) want(a Attached) {
	w.mu.Lock()
	defer w.mu.Unlock()
	changed := a.Mount.SnapshotNow != w.wanted.Mount.SnapshotNow || a.Ended != w.wanted.Ended ||
		a.Notice != w.wanted.Notice || a.Announced != w.wanted.Announced
	w.wanted = a
	// What is not stored when the host is reclaimed is lost.
	w.line.Hurry(w, a.Notice && a.Mount.Snapshot.OnNotice && w.ctx.Err() == nil)
	if changed {
		poke(w.kick)
	}
	if a.Peers == nil && w.peers != nil { // the workload may begin: all ranks have restored
		w.endExchange()
	}
}

// endExchange ends the exchange of packs with the other ranks. Callers hold w.mu.
func (w *worker) endExchange() {
	if g := w.peers; g != nil {
		w.peers = nil
		g.Close()
		st := g.Stats()
		w.d.log.Info("packs of a volume were exchanged with the other ranks", "volume", w.state.Volume, "from_peers",
			st.Peers, "from_store", st.Own, "from_store_alone", st.Alone, "sent", st.Sent)
	}
}

func poke(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

func (w *worker) status() State {
	w.mu.Lock()
	defer w.mu.Unlock()
	out := w.state
	if w.requester != nil { // what is wrong now says more than what came of the try before
		out.Problem = cmp.Or(w.requester.Trouble(), out.Problem)
	}
	return out
}

// end stops the worker, and reports whether it has ended.
func (w *worker) end() bool {
	w.cancel()
	select {
	case <-w.over:
		return true
	default:
		return false
	}
}

func (w *worker) set(f func(*State)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f(&w.state)
}

func (w *worker) now() Attached {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.wanted
}

// run attaches the volume and serves it until the worker is ended.
func (w *worker) run() {
	defer close(w.over)
	defer w.line.Hurry(w, false)
	defer func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.endExchange()
	}()
	v := w.attach()
	if v == nil {
		return
	}
	defer v.Close()
	var beside sync.WaitGroup
	beside.Go(func() { w.watchRoom(v) })
	beside.Go(func() { w.report(v) })
	w.serve(v)
	w.cancel()
	beside.Wait()
}

// attach opens and restores the volume, again and again until it succeeds, is refused, or the worker is ended.
func (w *worker) attach() *volume.Volume {
	for wait := retryFirst; w.ctx.Err() == nil; wait = min(2*wait, retryLast) {
		v, err := w.open()
		if err == nil {
			return v
		}
		var refused *agentapi.VolumeError
		if errors.As(err, &refused) && refused.Code != agentapi.VolumeAway {
			w.set(func(s *State) {
				s.Refused, s.Fenced, s.Closed = refused.Message, refused.Code == agentapi.VolumeFenced, true
			})
			<-w.ctx.Done()
			return nil
		}
		if volume.Unrestorable(err) {
			w.d.log.Warn("a volume cannot be restored", "volume", w.state.Volume, "err", err)
			w.set(func(s *State) { s.Refused, s.Unreadable, s.Closed = clip(err.Error()), true, true })
			<-w.ctx.Done()
			return nil
		}
		w.d.log.Warn("a volume cannot be attached and is tried again", "volume", w.state.Volume, "err", err)
		w.set(func(s *State) { s.Problem = err.Error() })
		select {
		case <-time.After(wait):
		case <-w.ctx.Done():
		}
	}
	return nil
}

func (w *worker) open() (*volume.Volume, error) {
	a := w.now()
	group, err := w.join(a)
	if err != nil {
		return nil, err
	}
	v, err := volume.Open(w.ctx, volume.Config{
		Ref: a.Ref, Mount: a.Mount, Root: a.Root, Server: w.d.server, HTTP: w.line.Client(), Turn: w.line.Turn,
		BootMS: bootMS, Log: w.d.log, Least: w.d.least, Peers: group, Opened: func(v *volume.Volume) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.requester = v
		},
	})
	if err != nil {
		return nil, err
	}
	if !v.Restored() {
		if err = v.Reset(); err == nil {
			err = v.Restore(w.ctx, func(p volume.Progress) {
				w.set(func(s *State) { s.Done, s.Total = p.Done, p.Total })
			})
		}
	}
	if err != nil {
		return nil, errors.Join(err, v.Close())
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.v = v
	w.state.Restored, w.state.Problem, w.state.Label = true, "", v.Label()
	w.noteCommit(v)
	return v, nil
}

// join begins the exchange with the other ranks if there are any; the group is nil if there are none.
func (w *worker) join(a Attached) (*peers.Group, error) {
	w.mu.Lock()
	g := w.peers
	w.mu.Unlock()
	if g != nil || a.Peers == nil {
		return g, nil
	}
	keys, err := chunk.NewKeys(a.Mount.Key)
	if err != nil {
		return nil, err
	}
	g = w.d.join(a, keys)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.peers = g
	return g, nil
}

// noteCommit puts the last commit into the state. Callers hold w.mu.
func (w *worker) noteCommit(v *volume.Volume) {
	last := v.Durable()
	w.state.Snapshot, w.state.Seq = last.As, last.Seq
}

// serve takes snapshots when they are due.
func (w *worker) serve(v *volume.Volume) {
	begun, failures := time.Now(), 0
	var committed time.Time
	for w.ctx.Err() == nil {
		a := w.now()
		if a.Mount.Mode == agentapi.MountRO {
			w.finish(v, a)
			w.wait(time.Minute)
			continue
		}
		q, j := w.due(v, a, begun)
		if q == nil {
			if w.finish(v, a) {
				<-w.ctx.Done()
				return
			}
			w.wait(w.untilDue(a, begun))
			continue
		}
		apart := leastApart - time.Since(committed)
		if apart > 0 && v.Pending() == "" {
			if w.wait(apart); w.ctx.Err() == nil && time.Since(committed) < leastApart {
				continue // something may be more urgent
			}
		}
		begun = time.Now()
		err := w.snapshot(v, a, q, j)
		if err == nil {
			failures, committed = 0, time.Now()
			continue
		}
		failures++
		if w.fenced(err) {
			<-w.ctx.Done()
			return
		}
		w.wait(min(retryFirst<<min(failures, 6), retryLast))
	}
}

// due returns the snapshot to take now, or nil: what was begun, what the job requests, what the renter requests, on
// notice, at the end, by the interval.
func (w *worker) due(v *volume.Volume, a Attached, begun time.Time) (*volume.Request, *job) {
	w.mu.Lock()
	defer w.mu.Unlock()
	policy := a.Mount.Snapshot
	w.announced = w.announced && a.Announced // a later announcement is another one
	for _, j := range w.jobs {
		if j.state.Stage == checkpoint.StageWaiting || j.state.Stage == checkpoint.StageSending {
			return &volume.Request{ID: j.ID, Cause: agentapi.SnapshotByJob, Label: j.Label, Dir: j.Dir, AllRanks: j.AllRanks}, j
		}
	}
	q := volume.Request{ID: checkpoint.NewID()}
	switch {
	case v.Pending() != "":
		q.ID, q.Cause = v.Pending(), agentapi.SnapshotByInterval
	case a.Mount.SnapshotNow != "" && a.Mount.SnapshotNow != w.done && a.Mount.SnapshotNow != v.Durable().Snapshot:
		q.ID, q.Cause = a.Mount.SnapshotNow, agentapi.SnapshotByRequest
		q.AllRanks = a.Mount.Mode == agentapi.MountRanks
	case policy.OnNotice && (a.Notice && !w.notice || a.Announced && !w.announced):
		q.Cause = agentapi.SnapshotByNotice
	case a.Ended && policy.OnEnd && !w.closed:
		q.Cause = agentapi.SnapshotByEnd
	case a.Ended:
		return nil, nil
	case policy.EveryS > 0 && time.Since(begun) >= time.Duration(policy.EveryS)*time.Second:
		q.Cause = agentapi.SnapshotByInterval
	default:
		return nil, nil
	}
	return &q, nil
}

// untilDue returns how long to wait unless something changes.
func (w *worker) untilDue(a Attached, begun time.Time) time.Duration {
	if a.Mount.Snapshot.EveryS > 0 && !a.Ended {
		return max(0, time.Duration(a.Mount.Snapshot.EveryS)*time.Second-time.Since(begun))
	}
	return time.Minute
}

func (w *worker) wait(d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-w.kick:
	case <-w.ctx.Done():
	}
}

// snapshot takes one snapshot and notes what came of it.
func (w *worker) snapshot(v *volume.Volume, a Attached, q *volume.Request, j *job) error {
	if a.PID > 0 && a.Mount.Pause != "never" && j == nil {
		g, err := volume.NewGroup(a.PID, w.d.freezes, w.d.guard)
		if err == nil {
			q.Freezer = g
			defer func() {
				if err := g.Close(); err != nil {
					w.d.log.Warn("the process that thaws", "err", err)
				}
			}()
		} else if !errors.Is(err, fs.ErrNotExist) { // not: the workload has ended meanwhile
			w.d.log.Warn("the workload cannot be stopped for a cut", "lease", a.Ref, "err", err)
		}
	}
	if j != nil {
		q.Cut = func() { w.move(j, func(s *checkpoint.State) { s.Stage = checkpoint.StageSending }) }
	}
	q.Wait = w.patience(j)
	w.line.Hurry(q, q.Cause == agentapi.SnapshotByNotice)
	defer w.line.Hurry(q, false)
	r, err := v.Snapshot(w.ctx, *q)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.noteCommit(v)
	if err == nil {
		w.state.Problem = ""
	} else if w.ctx.Err() == nil {
		w.state.Problem = err.Error()
		w.d.log.Warn("a snapshot failed", "volume", a.Mount.Volume, "snapshot", q.ID, "cause", q.Cause, "err", err)
	}
	if j != nil {
		w.settle(j, r, err)
		if j.state.Stage == checkpoint.StageFailed { // its next one may succeed at once
			return nil
		}
		return err
	}
	if err != nil && v.Pending() != "" {
		return err // the same snapshot goes on
	}
	switch q.Cause { // an attempt that was given up counts: the next one is another snapshot
	case agentapi.SnapshotByRequest:
		if !errors.Is(err, volume.ErrAlone) { // else the other ranks are requested to, too, and come later
			w.done = q.ID
		}
	case agentapi.SnapshotByNotice:
		if err == nil {
			w.notice, w.announced = w.notice || a.Notice, a.Announced
		}
	case agentapi.SnapshotByEnd:
		w.closed = err == nil
	}
	return err
}

// How long a rank waits for the others: for those that a job's checkpoint needs, for those that the renter's request
// reaches a moment later, and for those that may have ended like this one.
const (
	ranksIn      = 30 * time.Minute
	requestedIn  = time.Minute
	endedRanksIn = 2 * time.Minute
)

// patience returns a function that decides whether other ranks are waited for. What the renter requested gives way to
// the job's own checkpoints: two ranks might wait for each other.
func (w *worker) patience(j *job) func(missing []int) bool {
	begun := time.Now()
	var ended time.Time
	return func(missing []int) bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.wanted.Ended && ended.IsZero() {
			ended = time.Now()
		}
		if !ended.IsZero() && time.Since(ended) > endedRanksIn {
			return false
		}
		if j != nil {
			j.state.Missing = missing
			return time.Since(begun) < ranksIn
		}
		others := slices.ContainsFunc(w.jobs, func(j *job) bool { return j.state.Stage == checkpoint.StageWaiting })
		return !others && time.Since(begun) < requestedIn
	}
}

// fenced notes that the lease writes the volume no more, if that is what an error says.
func (w *worker) fenced(err error) bool {
	var refused *agentapi.VolumeError
	if !errors.As(err, &refused) || refused.Code != agentapi.VolumeFenced && refused.Code != agentapi.VolumeBaseMoved &&
		refused.Code != agentapi.VolumeNotFound {
		return false
	}
	w.set(func(s *State) { s.Fenced, s.Closed, s.Refused = true, true, refused.Message })
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, j := range w.jobs {
		w.settle(j, volume.Result{}, err)
	}
	return true
}

// finish closes the session once the workload has ended and the last snapshot is committed. It reports whether it is
// closed.
func (w *worker) finish(v *volume.Volume, a Attached) bool {
	if !a.Ended || w.status().Closed {
		return a.Ended
	}
	lost, err := v.Changed(w.ctx)
	if err != nil || a.Mount.Mode == agentapi.MountRO {
		lost = 0
	}
	if err := v.EndSession(w.ctx, lost); err != nil {
		w.d.log.Warn("a volume's session is not closed", "volume", a.Mount.Volume, "err", err)
		if w.ctx.Err() != nil {
			return false
		}
	}
	w.set(func(s *State) { s.Closed = true })
	return true
}

// watchRoom lets clones give way to what the workload writes.
func (w *worker) watchRoom(v *volume.Volume) {
	for t := time.NewTicker(roomEvery); ; {
		select {
		case <-t.C:
			v.MakeRoom()
		case <-w.ctx.Done():
			t.Stop()
			return
		}
	}
}

// report reports to the control plane, for people, what is not durable yet.
func (w *worker) report(v *volume.Volume) {
	var last agentapi.VolumeReport
	var sent, peeked time.Time
	pending := int64(0)
	for t := time.NewTicker(reportEvery); ; {
		select {
		case <-t.C:
		case <-w.ctx.Done():
			t.Stop()
			return
		}
		a := w.now()
		if w.status().Closed {
			continue
		}
		if a.Mount.Mode != agentapi.MountRO && time.Since(peeked) >= peekEvery {
			if n, err := v.Changed(w.ctx); err == nil {
				pending = n
			}
			peeked = time.Now()
		}
		u := v.Upload()
		r := agentapi.VolumeReport{PendingBytes: pending, Snapshot: u.Snapshot, Sent: u.Sent, Total: u.Total,
			Problem: clip(w.status().Problem)}
		if u.Snapshot != "" && u.Rate > 0 {
			r.FlushETAS = max(1, (max(pending, u.Total)-u.Sent)/u.Rate)
		}
		if r == last && time.Since(sent) < reportLeast {
			continue
		}
		if err := v.Report(w.ctx, r); err == nil {
			last, sent = r, time.Now()
		}
	}
}

func clip(s string) string { return agentapi.CleanText(s[:min(len(s), 400)]) }
