// Package nodelog reads the output of the ranks of a cluster: stored logs of ended runs from the database, and the
// output of present runs from their hosts over dialled-back streams.
//
// Invariant: a reader gets each line of a rank at most once, and a rank's lines in the order in which they were
// printed, even if a run's clock is behind that of the previous run. This holds for readers that follow and for readers
// that resume at a Position.
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
	"github.com/musterhq/muster/internal/slots"
)

const (
	maxLine     = 512 << 10        // bytes of JSON: the agent's 64 KiB with maximal escaping
	hostAnswers = 10 * time.Second // for a host to dial back
	runTime     = 30 * time.Second // for a host to dial back and send the output of a run so far
	presentTime = 2 * time.Minute  // for all ranks of one request
)

// Limits on the memory of one request, in bytes: the text of each line plus lineCost. Hosts decide what they send and
// when a stream ends, so every read keeps only the last lines and has a time limit.
const (
	maxRank    = 16 << 20 // per rank
	maxRequest = 32 << 20 // for all ranks together, with equal shares
	minRank    = 256 << 10
)

// Store returns stored logs, and the hosts that can stream present runs. *cluster.Views implements it.
type Store interface {
	Get(ctx context.Context, org id.Org, cl id.Cluster) (cluster.Cluster, error)
	Log(ctx context.Context, org id.Org, cl id.Cluster, rank int) (cluster.Log, error)
}

// Opener opens a stream from a host. It returns fault.Unavailable if the host is unreachable, does not respond or
// refuses.
type Opener func(ctx context.Context, host id.Host, d agentapi.Dial) (io.ReadCloser, error)

// Dialled returns an Opener that uses x. If x is nil, the Opener always returns fault.Unavailable.
func Dialled(x *dialback.Dialer) Opener {
	return func(ctx context.Context, host id.Host, d agentapi.Dial) (io.ReadCloser, error) {
		if x == nil {
			return nil, fault.New(fault.Unavailable, "this server does not read live logs")
		}
		s, err := x.Open(ctx, host, d)
		if err != nil {
			return nil, err // avoids a non-nil interface that contains a nil *Stream
		}
		return s, nil
	}
}

// Line is one line of one run of a rank.
type Line struct {
	Rank, Epoch int
	agentapi.LogFrame
}

// Query selects the lines to read.
type Query struct {
	Org     id.Org
	Cluster id.Cluster
	Ranks   []int
	Tail    int // lines from the end of each rank; -1 = all
}

// window returns an empty window for the lines of one rank.
func (q Query) window() *window {
	share := maxRequest / max(1, len(q.Ranks))
	return &window{maxLines: q.Tail, maxBytes: min(maxRank, max(minRank, share))}
}

// What organisations may do at the same time on this replica.
const (
	gatherPerOrg = 4                // requests of one org that hold lines in memory
	gatherAll    = 16               // the same for all orgs
	gatherWait   = 15 * time.Second // how long a request waits for a slot
	followPerOrg = 64               // streams of one org
)

// Reader reads logs. It is safe for concurrent use.
type Reader struct {
	store Store
	open  Opener
	bus   *bus.Bus

	gathering *slots.Slots // requests that hold lines in memory, each up to maxRequest
	following *slots.Slots // streams

	runTime time.Duration
}

// New returns a Reader. If b is nil, followers are not notified of changes and poll every second.
func New(store Store, open Opener, b *bus.Bus) *Reader {
	return &Reader{store: store, open: open, bus: b, runTime: runTime,
		gathering: &slots.Slots{PerOrg: gatherPerOrg, All: gatherAll, Wait: gatherWait,
			Full: "logs are being read by many requests at the same time: try again in a moment"},
		following: &slots.Slots{PerOrg: followPerOrg,
			Full: "your organisation follows logs in too many places: close some"},
	}
}

// Merge sorts the lines of several ranks by time and keeps the order of each rank's lines. If a rank's clock goes back,
// its lines are sorted by the latest time before.
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

// Kept returns the last stored lines, merged, and what is missing before them. more is true if a host has, or may later
// have, lines that are not stored. Fault: RateLimited.
func (r *Reader) Kept(ctx context.Context, q Query) (lines []Line, cut Cut, more bool, err error) {
	leave, err := r.gathering.Take(ctx, q.Org)
	if err != nil {
		return nil, cut, false, err
	}
	defer leave()
	for _, rank := range q.Ranks {
		log, err := r.store.Log(ctx, q.Org, q.Cluster, rank)
		if err != nil {
			return nil, cut, false, err
		}
		w := q.window()
		stored(log, rank, w.add)
		w.cut = w.cut || q.Tail < 0 && truncated(log)
		lines = append(lines, w.lines()...)
		cut.add(w.missing())
		more = more || log.Live != nil
	}
	Merge(lines)
	return lines, cut, more, nil
}

// Present returns what the ranks have printed so far, merged: the stored logs, and the present runs from their hosts.
// cut is what is missing of a rank's first lines for another reason than q.Tail: there were too many for one response,
// or for what a host keeps of a run that has ended. Faults: RateLimited; Unavailable if nothing of a rank can be read
// although it has started. If a rank has not started, that is no error; see Waiting.
func (r *Reader) Present(ctx context.Context, q Query) (lines []Line, cut Cut, err error) {
	leave, err := r.gathering.Take(ctx, q.Org)
	if err != nil {
		return nil, cut, err
	}
	defer leave()
	ctx, cancel := context.WithTimeout(ctx, presentTime)
	defer cancel()
	for _, rank := range q.Ranks {
		w := q.window()
		if err := r.present(ctx, q, rank, w); err != nil {
			return nil, cut, err
		}
		lines = append(lines, w.lines()...)
		cut.add(w.missing())
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
	w.cut = w.cut || q.Tail < 0 && truncated(log)
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
	w.lost.add(run.lost)
	for _, l := range run.lines() {
		w.add(l)
	}
	if fault.Is(err, fault.Unavailable) && w.count > 0 {
		err = nil // the host is unreachable or the run has not started: return the stored lines
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
		if n.Rank == rank && !c.State.Ended() { // if it has ended, the node's state does not matter
			switch n.State {
			case lifecycle.NodePending, lifecycle.NodePulling, lifecycle.NodeStarting, lifecycle.NodeJoining:
				return false
			}
		}
	}
	return true
}

// Waiting lists the ranks that cannot have printed anything yet, with their states: "rank 0 is pulling, rank 1 is
// pending". It returns "" if there are none.
func Waiting(c cluster.Cluster, ranks []int) string {
	var out []string
	for _, n := range c.Nodes {
		if slices.Contains(ranks, n.Rank) && !begun(c, n.Rank) {
			out = append(out, fmt.Sprintf("rank %d is %s", n.Rank, n.State))
		}
	}
	return strings.Join(out, ", ")
}

// keptMeanwhile tries again to get the log of a run that could not be streamed. The run's container may just be
// stopping: then its log has been stored meanwhile, or its host still has the copy that it saved before removing the
// container.
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
		return nil, nil, nil // the host would probably not respond again
	}
	kept = q.window()
	if r.run(ctx, rank, *l, agentapi.PurposeKeptLog, kept) != nil {
		return nil, nil, nil // the caller reports the first failure
	}
	return nil, kept, nil
}

// run reads one run from its host into w. On an error, w contains the lines before it. run stops after runTime, and
// when the host sends more lines than requested.
func (r *Reader) run(ctx context.Context, rank int, l cluster.LiveLog, purpose string, w *window) error {
	reading, cancel := context.WithTimeout(ctx, r.runTime)
	defer cancel()
	d := agentapi.Dial{LeaseRef: l.Ref, Purpose: purpose}
	asked := 0
	if purpose == agentapi.PurposeLogs && w.maxLines >= 0 {
		asked = max(1, w.maxLines) // 0 would mean all
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

// mostFor returns how many lines to accept from a host when the last n were requested. A correct host may send more
// than n, because it splits long lines.
func mostFor(n int) int { return 2*n + overlap }

// truncated reports whether the beginning of a stored log was left out because it was too large to store.
func truncated(log cluster.Log) bool {
	return slices.ContainsFunc(log.Runs, func(run cluster.RunLog) bool { return run.Truncated })
}

// stored calls each for the lines of a rank's stored logs, in the order of the runs.
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

// stream calls each for every line that the host sends, until each returns false, the stream ends, or ctx is done.
// whole is true if the stream ended normally.
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
			continue // skip malformed lines: hosts are not trusted
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
