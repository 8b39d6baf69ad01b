// Package nodelog reads what the ranks of a cluster print: kept logs of ended runs from the store, present runs from
// their hosts, by a stream that the host dials back.
//
// What always holds, for readers that follow and for those that come back with a Position: no line of a rank twice, and
// its lines in the order it printed them, also where a run's clock is behind that of the run before.
package nodelog

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/bus"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/fleet/cluster"
	"github.com/musterhq/muster/internal/fleet/cluster/lifecycle"
	"github.com/musterhq/muster/internal/fleet/dialback"
	"github.com/musterhq/muster/internal/id"
)

const (
	maxLine     = 512 << 10        // of JSON: the agent's 64 KiB, escaped at worst
	hostAnswers = 10 * time.Second // for a host to dial back
	runTime     = 30 * time.Second // for a host to dial back and send what a run has printed so far
	presentTime = 2 * time.Minute  // for all ranks of one request
)

// Limits of what one request holds in memory, in bytes as line.cost counts them. A host decides what it sends and when
// its stream ends, so every reading keeps the last lines only, and ends by itself.
const (
	maxRank    = 16 << 20 // of a rank
	maxRequest = 32 << 20 // of all ranks together: each has an equal share
	minRank    = 256 << 10
)

// Store is where kept logs are, and where is known which host can stream a present run; *cluster.Clusters.
type Store interface {
	Get(ctx context.Context, org id.Org, cl id.Cluster) (cluster.Cluster, error)
	Log(ctx context.Context, org id.Org, cl id.Cluster, rank int) (cluster.Log, error)
}

// Opener opens a stream from a host. One that is away, silent or unwilling is fault.Unavailable.
type Opener func(ctx context.Context, host id.Host, d agentapi.Dial) (io.ReadCloser, error)

// Dialled opens streams through x; nil: there are none.
func Dialled(x *dialback.Dialer) Opener {
	return func(ctx context.Context, host id.Host, d agentapi.Dial) (io.ReadCloser, error) {
		if x == nil {
			return nil, fault.New(fault.Unavailable, "this server does not read live logs")
		}
		s, err := x.Open(ctx, host, d)
		if err != nil {
			return nil, err // not a nil *Stream in an interface
		}
		return s, nil
	}
}

// Line is one line of one run of a rank.
type Line struct {
	Rank, Epoch int
	agentapi.LogFrame
}

// Query is what is asked for.
type Query struct {
	Org     id.Org
	Cluster id.Cluster
	Ranks   []int
	Tail    int // lines from the end, of each rank; -1 = all there are
}

// window makes what one rank's lines are gathered in.
func (q Query) window() *window {
	share := maxRequest / max(1, len(q.Ranks))
	return &window{maxLines: q.Tail, maxBytes: min(maxRank, max(minRank, share))}
}

// Reader reads logs. Safe for concurrent use.
type Reader struct {
	store Store
	open  Opener
	bus   *bus.Bus
	slots slots

	runTime time.Duration
}

// New makes a Reader. With a nil bus, followers look for changes every second.
func New(store Store, open Opener, b *bus.Bus) *Reader {
	return &Reader{store: store, open: open, bus: b, runTime: runTime}
}

// Merge orders lines of several ranks by time and keeps those of each rank in their order: where a rank's clock goes
// back, its lines count as of the latest time it had.
func Merge(lines []Line) {
	type at struct {
		ms int64
		Line
	}
	latest := map[int]int64{}
	timed := make([]at, len(lines))
	for i, l := range lines {
		if ms, seen := latest[l.Rank]; !seen || l.TimeMS > ms {
			latest[l.Rank] = l.TimeMS
		}
		timed[i] = at{latest[l.Rank], l}
	}
	slices.SortStableFunc(timed, func(a, b at) int { return cmp.Compare(a.ms, b.ms) })
	for i, t := range timed {
		lines[i] = t.Line
	}
}

// Kept are the last of the stored lines, merged. More says that a host has, or may yet have, lines that are not stored.
// Fault: RateLimited.
func (r *Reader) Kept(ctx context.Context, q Query) (lines []Line, more bool, err error) {
	leave, err := r.slots.gather(ctx, q.Org)
	if err != nil {
		return nil, false, err
	}
	defer leave()
	for _, rank := range q.Ranks {
		log, err := r.store.Log(ctx, q.Org, q.Cluster, rank)
		if err != nil {
			return nil, false, err
		}
		w := q.window()
		stored(log, rank, w.add)
		lines = append(lines, w.lines()...)
		more = more || log.Live != nil
	}
	Merge(lines)
	return lines, more, nil
}

// Present is what the ranks have printed so far, merged: the kept logs, then the present runs as their hosts tell. Cut
// says that lines are missing at the beginning of a rank, beyond q.Tail, because there were too many for one answer. A
// rank of which nothing at all can be read makes it fault.Unavailable, unless it has not begun: then there is nothing
// to read, and Waiting says so. Faults: Unavailable, RateLimited.
func (r *Reader) Present(ctx context.Context, q Query) (lines []Line, cut bool, err error) {
	leave, err := r.slots.gather(ctx, q.Org)
	if err != nil {
		return nil, false, err
	}
	defer leave()
	ctx, cancel := context.WithTimeout(ctx, presentTime)
	defer cancel()
	for _, rank := range q.Ranks {
		w := q.window()
		if err := r.present(ctx, q, rank, w); err != nil {
			return nil, false, err
		}
		lines = append(lines, w.lines()...)
		cut = cut || w.cut
	}
	Merge(lines)
	return lines, cut, nil
}

func (r *Reader) present(ctx context.Context, q Query, rank int, w *window) error {
	log, err := r.store.Log(ctx, q.Org, q.Cluster, rank)
	if err != nil {
		return err
	}
	stored(log, rank, w.add)
	if log.Live == nil {
		return nil
	}
	run := q.window()
	err = r.run(ctx, rank, *log.Live, agentapi.PurposeLogs, run)
	if fault.Is(err, fault.Unavailable) {
		again, kept, lerr := r.keptMeanwhile(ctx, q, rank, log.Live, err)
		switch {
		case lerr != nil:
			return lerr
		case again != nil:
			*w = *q.window()
			stored(*again, rank, w.add)
			return nil
		case kept != nil:
			run, err = kept, nil
		}
	}
	w.cut = w.cut || run.cut
	for _, l := range run.lines() {
		w.add(l)
	}
	if fault.Is(err, fault.Unavailable) && w.count > 0 {
		err = nil // the host is away or has not begun: what is kept is what there is
	}
	if fault.Is(err, fault.Unavailable) {
		c, gerr := r.store.Get(ctx, q.Org, q.Cluster)
		if gerr != nil {
			return gerr
		}
		if !begun(c, rank) {
			err = nil
		}
	}
	return err
}

// begun reports whether a rank's command may have printed something.
func begun(c cluster.Cluster, rank int) bool {
	for _, n := range c.Nodes {
		if n.Rank == rank && !c.State.Ended() { // then whatever its state was
			switch n.State {
			case lifecycle.NodePending, lifecycle.NodePulling, lifecycle.NodeStarting, lifecycle.NodeJoining:
				return false
			}
		}
	}
	return true
}

// Waiting says why some of the ranks can have printed nothing yet: "rank 0 is pulling, rank 1 is pending"; "" when all
// may have.
func Waiting(c cluster.Cluster, ranks []int) string {
	var out []string
	for _, n := range c.Nodes {
		if slices.Contains(ranks, n.Rank) && !begun(c, n.Rank) {
			out = append(out, fmt.Sprintf("rank %d is %s", n.Rank, n.State))
		}
	}
	return strings.Join(out, ", ")
}

// keptMeanwhile looks once more for a run that could not be streamed. Its container may just be on its way out: then
// the run's log is stored by now, or its host still has what it kept of it before it began to remove.
func (r *Reader) keptMeanwhile(ctx context.Context, q Query, rank int, l *cluster.LiveLog,
	cause error) (again *cluster.Log, kept *window, err error) {
	log, err := r.store.Log(ctx, q.Org, q.Cluster, rank)
	if err != nil {
		return nil, nil, err
	}
	for _, run := range log.Runs {
		if run.Epoch == l.Ref.Epoch {
			return &log, nil, nil
		}
	}
	if errors.Is(cause, context.DeadlineExceeded) {
		return nil, nil, nil // a silent host would be silent again
	}
	kept = q.window()
	if r.run(ctx, rank, *l, agentapi.PurposeKeptLog, kept) != nil {
		return nil, nil, nil // the first failure is the one to tell
	}
	return nil, kept, nil
}

// run reads one run from its host into w, as far as it goes: with an error, the lines before it. It ends after runTime,
// and when the host sends more lines than it was asked for.
func (r *Reader) run(ctx context.Context, rank int, l cluster.LiveLog, purpose string, w *window) error {
	reading, cancel := context.WithTimeout(ctx, r.runTime)
	defer cancel()
	d := agentapi.Dial{LeaseRef: l.Ref, Purpose: purpose}
	asked := 0
	if purpose == agentapi.PurposeLogs && w.maxLines >= 0 {
		asked = max(1, w.maxLines) // 0 would be all
		d.Tail = asked
	}
	came := 0
	whole, err := r.stream(reading, rank, l, d, func(line Line) bool {
		if came++; asked > 0 && came > mostFor(asked) {
			w.cut = true
			return false
		}
		w.add(line)
		return true
	})
	if !whole && err == nil && ctx.Err() == nil && reading.Err() != nil {
		w.cut = true
		if came == 0 {
			err = fault.Wrap(context.DeadlineExceeded, fault.Unavailable, "The host did not answer in time.")
		}
	}
	return err
}

// mostFor is how many lines are read of a host that was asked for the last n: an honest one may send more than n, for
// it splits long lines.
func mostFor(n int) int { return 2*n + overlap }

// stored calls each for the lines of a rank's kept logs, in the order of its runs.
func stored(log cluster.Log, rank int, each func(Line)) {
	for _, run := range log.Runs {
		for raw := range bytes.Lines(run.Content) {
			l := Line{Rank: rank, Epoch: run.Epoch}
			if json.Unmarshal(raw, &l.LogFrame) == nil {
				each(l)
			}
		}
	}
}

// stream calls each for every line that the host sends, until it returns false, the stream ends, or ctx does. Whole
// says that the stream ended by itself.
func (r *Reader) stream(ctx context.Context, rank int, l cluster.LiveLog, d agentapi.Dial,
	each func(Line) bool) (whole bool, err error) {
	dialCtx, cancel := context.WithTimeout(ctx, hostAnswers)
	s, err := r.open(dialCtx, l.Host, d)
	silent := dialCtx.Err() != nil && ctx.Err() == nil
	cancel()
	switch {
	case err != nil && silent:
		return false, fault.Wrap(context.DeadlineExceeded, fault.Unavailable, "The host did not answer in time.")
	case err != nil:
		return false, err
	}
	defer s.Close()
	stop := context.AfterFunc(ctx, func() { s.Close() })
	defer stop()
	scan := bufio.NewScanner(s)
	scan.Buffer(make([]byte, 0, 4096), maxLine)
	for scan.Scan() {
		line := Line{Rank: rank, Epoch: l.Ref.Epoch}
		if json.Unmarshal(scan.Bytes(), &line.LogFrame) != nil {
			continue // what a host sends is not trusted
		}
		if !each(line) {
			return false, nil
		}
	}
	if err := scan.Err(); err != nil && ctx.Err() == nil {
		return false, fault.Wrap(err, fault.Unavailable, "the log stream of host %s broke off", l.Host.Short())
	}
	return ctx.Err() == nil, nil
}
