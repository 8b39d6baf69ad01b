package nodelog

import (
	"context"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/bus"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/fleet/cluster"
)

const (
	lookEvery = time.Second      // between reads of a log that has not started, was interrupted, or has ended
	quietFor  = 25 * time.Second // how long to wait for an ended cluster's last lines
	leaveLook = 10 * time.Second // between checks that a streamed run is still the rank's current one
	// leaveUntold is the number of leaveLook intervals after which that check is made even if the bus reported no change.
	leaveUntold = 3
	maxAgain    = 30 * time.Second // between reads of a run that has ended and produces nothing new

	looksAtOnce = 16              // ranks read concurrently at the start
	tailTime    = 3 * time.Second // for a host to send the tail; kept short because other ranks wait
	overlap     = 1000            // lines read twice to find where the tail ended
)

// Follow sends lines to out until the cluster has ended and its logs are completely read, or until ctx is done, which
// is no error. It first sends the stored lines, merged, and then the lines of all ranks as they are printed. If a host
// is unreachable, a run has not started, or a node restarts or is replaced, Follow waits; if a stream breaks, Follow
// resumes it at the same line.
//
// For ranks in from, Follow resumes at that position and ignores q.Tail. Fault: RateLimited.
func (r *Reader) Follow(ctx context.Context, q Query, from Position, out chan<- Line) error {
	leave, err := r.following.Take(ctx, q.Org)
	if err != nil {
		return err
	}
	defer leave()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ranks, parts := make([]*follower, len(q.Ranks)), make([][]Line, len(q.Ranks))
	looking, lookCtx := errgroup.WithContext(ctx)
	looking.SetLimit(looksAtOnce)
	for i, rank := range q.Ranks {
		f := &follower{
			r:       r,
			q:       q,
			rank:    rank,
			mark:    from[rank],
			out:     out,
			changes: r.bus.Watch(ctx, bus.TopicCluster(q.Cluster)),
		}
		ranks[i] = f
		looking.Go(func() error {
			w, err := f.look(lookCtx)
			parts[i] = f.begin(lookCtx, w)
			return err
		})
	}
	err = looking.Wait()
	if err != nil {
		return whileOpen(ctx, err)
	}
	begin := slices.Concat(parts...)
	Merge(begin)
	for _, l := range begin {
		if !send(ctx, out, l) {
			return nil
		}
	}
	group, ctx := errgroup.WithContext(ctx)
	for _, f := range ranks {
		group.Go(func() error { return f.run(ctx) })
	}
	return group.Wait()
}

// follower follows one rank.
type follower struct {
	r       *Reader
	q       Query
	rank    int
	mark    mark
	looked  bool
	fresh   bool // the last look was the first, and mark was empty
	out     chan<- Line
	changes <-chan bus.Change

	cluster cluster.Cluster // as of the last look
	log     cluster.Log

	owed      int // lines from the end at which the stream of run owedEpoch starts; other runs start at line 1
	owedEpoch int

	quiet time.Time     // when the cluster was first known to have ended
	whole int           // last run whose stream ended normally
	pause time.Duration // time before that run is read again
	due   time.Time
}

// begin returns the requested tail of the lines that exist at the start: the stored lines in w and the last lines of
// the present run. Of runs that start later, all lines are sent.
func (f *follower) begin(ctx context.Context, w *window) []Line {
	l := f.log.Live
	if f.q.Tail < 0 || !f.fresh || l == nil || !f.begun() {
		return w.lines()
	}
	ctx, cancel := context.WithTimeout(ctx, tailTime)
	defer cancel()
	d := agentapi.Dial{LeaseRef: l.Ref, Purpose: agentapi.PurposeLogs, Tail: f.q.Tail + overlap}
	run := window{maxLines: d.Tail, maxBytes: maxRank}
	whole, _ := f.r.stream(ctx, f.rank, *l, d, func(line Line) bool {
		run.add(line)
		return run.count < mostFor(d.Tail)
	})
	switch {
	case !whole: // the stream that follows must start with the tail
		f.owed, f.owedEpoch = max(f.q.Tail, 1), l.Ref.Epoch
		return w.lines()
	case run.count > 0:
		f.owed, f.owedEpoch = d.Tail, l.Ref.Epoch
	}
	for _, line := range run.lines() {
		f.mark.take(line)
		w.add(line)
	}
	return w.lines()
}

// look reads the cluster's present state and the lines that were stored after the mark. It returns the last of these
// lines and moves the mark past all of them, because dropped lines are not needed later either.
func (f *follower) look(ctx context.Context) (w *window, err error) {
	w = f.q.window()
	f.fresh = !f.looked && f.mark.epoch == 0
	f.looked = true
	if !f.fresh {
		w.maxLines = -1
	}
	// Read the cluster first: if it has ended, a log that is read afterwards is complete.
	if f.cluster, err = f.r.store.Get(ctx, f.q.Org, f.q.Cluster); err != nil {
		return w, err
	}
	if f.log, err = f.r.store.Log(ctx, f.q.Org, f.q.Cluster, f.rank); err != nil {
		return w, err
	}
	if f.cluster.State.Ended() && f.quiet.IsZero() {
		f.quiet = time.Now()
	}
	again := replay{mark: f.mark}
	stored(f.log, f.rank, func(l Line) {
		if again.fresh(l) {
			w.add(l)
			f.mark.take(l)
		}
	})
	f.log.Runs = nil // frees megabytes that are not read again
	return w, nil
}

// begun reports whether the node's command may have printed something.
func (f *follower) begun() bool { return begun(f.cluster, f.rank) }

// run follows the rank after the first look.
func (f *follower) run(ctx context.Context) error {
	for {
		if over, err := f.live(ctx); over || err != nil || ctx.Err() != nil {
			return whileOpen(ctx, err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-f.changes:
		case <-time.After(lookEvery):
		}
		w, err := f.look(ctx)
		if err != nil {
			return whileOpen(ctx, err)
		}
		for _, l := range w.lines() {
			if !send(ctx, f.out, l) {
				return nil
			}
		}
	}
}

// whileOpen returns err, or nil if the reader has disconnected, because then that is the cause of the error.
func whileOpen(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// live streams the present run until its end. over is true if no more lines will come.
func (f *follower) live(ctx context.Context) (over bool, err error) {
	l, ended := f.log.Live, f.cluster.State.Ended()
	if l == nil {
		return ended, nil
	}
	lost := ended && time.Since(f.quiet) > quietFor
	if !f.begun() || (!ended && l.Ref.Epoch == f.whole && time.Now().Before(f.due)) {
		return lost, nil
	}
	d := agentapi.Dial{LeaseRef: l.Ref, Purpose: agentapi.PurposeLogs, Follow: true}
	if l.Ref.Epoch == f.owedEpoch {
		d.Tail = f.owed
	}
	again, came, first := replay{mark: f.mark}, false, true
	streaming, cancel := context.WithCancel(ctx)
	left := make(chan struct{})
	go func() {
		defer close(left)
		f.leave(streaming, *l, cancel)
	}()
	whole, err := f.r.stream(streaming, f.rank, *l, d, func(line Line) bool {
		fresh, begins := again.fresh(line), first
		first = false
		switch {
		case !fresh:
			return true
		case begins && d.Tail > 0 && f.mark.epoch == line.Epoch:
			f.owedEpoch = 0 // lines may be missing in between: read the whole run
			return false
		}
		if !send(ctx, f.out, line) {
			return false
		}
		f.mark.take(line)
		came, f.owedEpoch = true, 0
		return true
	})
	if streaming.Err() != nil {
		err = nil // we ended the stream
	}
	cancel()
	<-left
	if ctx.Err() != nil || (err != nil && !fault.Is(err, fault.Unavailable)) {
		return false, err
	}
	if whole {
		f.owedEpoch = 0
		f.rest(l.Ref.Epoch, came)
	}
	return lost || (whole && ended), nil
}

// rest sets the time before a run is read again that has ended while its cluster continues. Each such read is of the
// whole log, so the pause grows.
func (f *follower) rest(epoch int, came bool) {
	if came || f.whole != epoch {
		f.pause = lookEvery / 2
	}
	f.whole, f.pause = epoch, min(2*f.pause, maxAgain)
	f.due = time.Now().Add(f.pause)
}

// leave ends the stream if its host no longer has the rank or the cluster is final, because a host that crashed does
// not close the stream. It waits for a second such check, so that the last lines can arrive.
func (f *follower) leave(ctx context.Context, l cluster.LiveLog, end func()) {
	leaving := false
	for looks := 1; ; looks++ {
		select {
		case <-ctx.Done():
			return
		case <-time.After(leaveLook):
		}
		select {
		case <-f.changes:
		default:
			if !leaving && looks%leaveUntold != 0 {
				continue
			}
		}
		c, err := f.r.store.Get(ctx, f.q.Org, f.q.Cluster)
		if err != nil {
			continue // check again next time
		}
		gone := c.State.Final()
		for _, n := range c.Nodes {
			gone = gone || (n.Rank == f.rank && n.HostID != l.Host)
		}
		if gone && leaving {
			end()
			return
		}
		leaving = gone
	}
}

func send(ctx context.Context, out chan<- Line, l Line) bool {
	select {
	case out <- l:
		return true
	case <-ctx.Done():
		return false
	}
}
