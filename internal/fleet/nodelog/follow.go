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
	lookEvery = time.Second      // between looks at a log that has not begun, has broken off, or has ended
	quietFor  = 25 * time.Second // how long an ended cluster's last lines are waited for
	leaveLook = 10 * time.Second // between looks whether a run that is being streamed is still the rank's
	// leaveUntold is after how many times of leaveLook that is looked at though the bus told of no change.
	leaveUntold = 3
	maxAgain    = 30 * time.Second // between readings of a run that has ended by itself and brings nothing new

	looksAtOnce = 16              // of ranks, at first
	tailTime    = 3 * time.Second // for a host to tell the tail: others are not to wait long for it
	overlap     = 1000            // lines that are read twice, to find where the tail ended
)

// Follow sends lines to out until the cluster has ended and its logs are read to the end, or ctx ends, which is no
// error. First come those that are kept, merged; then those of all ranks as they are printed. A host that is away, a
// run that has not begun, a restart and a replacement are waited for; a stream that broke off is taken up where it
// ended.
//
// A rank that from knows is read from there on, and q.Tail is not for it. Fault: RateLimited.
func (r *Reader) Follow(ctx context.Context, q Query, from Position, out chan<- Line) error {
	leave, err := r.slots.follow(q.Org)
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
	fresh   bool // the last look was the first one, and the mark was empty
	out     chan<- Line
	changes <-chan bus.Change

	cluster cluster.Cluster // as last looked at
	log     cluster.Log

	owed      int // how many lines from its end the stream of the run owedEpoch is to begin with; of others, all
	owedEpoch int

	quiet time.Time     // since when the cluster is known to have ended
	whole int           // the epoch whose stream ended by itself and brought nothing new
	pause time.Duration // before it is read once more
	due   time.Time
}

// begin is the tail that is asked for of what there is at first, after the stored lines in w. Of a run that begins
// while it is followed, every line is wanted.
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
	case !whole: // the stream that follows is to begin with the tail
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

// look reads what is known now, and what was stored beyond the mark, of which it keeps the last lines: the mark moves
// on by those that are dropped too, for they are not wanted later either.
func (f *follower) look(ctx context.Context) (w *window, err error) {
	w = f.q.window()
	f.fresh = !f.looked && f.mark.epoch == 0
	f.looked = true
	if !f.fresh {
		w.maxLines = -1
	}
	// The cluster first: if it has ended, the log read after that is the last there is.
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
	f.log.Runs = nil // megabytes that nobody reads again
	return w, nil
}

// begun reports whether the node's command may have printed something.
func (f *follower) begun() bool { return begun(f.cluster, f.rank) }

// run goes on after the first look.
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

// whileOpen is err, unless the reader has left: then whatever failed did so because of that.
func whileOpen(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// live streams the present run until its end. Over says that nothing more will come.
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
			f.owedEpoch = 0 // there may be lines between: all is to be read
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
		err = nil // its end was ours
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

// rest spaces the readings of a run that has ended by itself while its cluster goes on: each is of the whole log.
func (f *follower) rest(epoch int, came bool) {
	if came || f.whole != epoch {
		f.pause = lookEvery / 2
	}
	f.whole, f.pause = epoch, min(2*f.pause, maxAgain)
	f.due = time.Now().Add(f.pause)
}

// leave ends a stream whose host no longer has the rank, or whose cluster is over: a host that died does not close it.
// It gives the last lines the time of one more look.
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
			continue // the next look tells
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
