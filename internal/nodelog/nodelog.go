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
	"github.com/musterhq/muster/internal/cluster"
	"github.com/musterhq/muster/internal/dialback"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
)

const (
	maxLine     = 512 << 10        // of JSON: the agent's 64 KiB, escaped at worst
	hostAnswers = 10 * time.Second // for a host to dial back
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

func (q Query) tail(lines []Line) []Line {
	if q.Tail < 0 {
		return lines
	}
	return lines[max(0, len(lines)-q.Tail):]
}

// Reader reads logs. Safe for concurrent use.
type Reader struct {
	store Store
	open  Opener
	bus   *bus.Bus
}

// New makes a Reader. With a nil bus, followers look for changes every second.
func New(store Store, open Opener, b *bus.Bus) *Reader { return &Reader{store, open, b} }

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

// Kept are the stored lines, merged. More says that a host has, or may yet have, lines that are not stored.
func (r *Reader) Kept(ctx context.Context, q Query) (lines []Line, more bool, err error) {
	for _, rank := range q.Ranks {
		log, err := r.store.Log(ctx, q.Org, q.Cluster, rank)
		if err != nil {
			return nil, false, err
		}
		lines = append(lines, q.tail(stored(log, rank))...)
		more = more || log.Live != nil
	}
	Merge(lines)
	return lines, more, nil
}

// Present is what the ranks have printed so far, merged: the kept logs, then the present runs as their hosts tell. A
// rank of which nothing at all can be read makes it fault.Unavailable, unless it has not begun: then there is nothing to
// read, and Waiting says so.
func (r *Reader) Present(ctx context.Context, q Query) ([]Line, error) {
	var all []Line
	for _, rank := range q.Ranks {
		part, err := r.present(ctx, q, rank)
		if err != nil {
			return nil, err
		}
		all = append(all, q.tail(part)...)
	}
	Merge(all)
	return all, nil
}

func (r *Reader) present(ctx context.Context, q Query, rank int) ([]Line, error) {
	log, err := r.store.Log(ctx, q.Org, q.Cluster, rank)
	if err != nil {
		return nil, err
	}
	lines := stored(log, rank)
	if log.Live == nil {
		return lines, nil
	}
	run, err := r.run(ctx, rank, *log.Live, agentapi.PurposeLogs)
	if fault.Is(err, fault.Unavailable) {
		again, kept, lerr := r.keptMeanwhile(ctx, q, rank, log.Live, err)
		switch {
		case lerr != nil:
			return nil, lerr
		case again != nil:
			return stored(*again, rank), nil
		case kept != nil:
			run, err = kept, nil
		}
	}
	lines = append(lines, run...)
	if fault.Is(err, fault.Unavailable) && len(lines) > 0 {
		err = nil // the host is away or has not begun: what is kept is what there is
	}
	if fault.Is(err, fault.Unavailable) {
		c, gerr := r.store.Get(ctx, q.Org, q.Cluster)
		if gerr != nil {
			return nil, gerr
		}
		if !begun(c, rank) {
			err = nil
		}
	}
	return lines, err
}

// begun reports whether a rank's command may have printed something.
func begun(c cluster.Cluster, rank int) bool {
	for _, n := range c.Nodes {
		if n.Rank == rank && !c.State.Ended() { // then whatever its state was
			switch n.State {
			case cluster.NodePending, cluster.NodePulling, cluster.NodeStarting, cluster.NodeJoining:
				return false
			}
		}
	}
	return true
}

// Waiting says why some of the ranks can have printed nothing yet: "rank 0 is pulling, rank 1 is pending"; "" when all may
// have.
func Waiting(c cluster.Cluster, ranks []int) string {
	var out []string
	for _, n := range c.Nodes {
		if slices.Contains(ranks, n.Rank) && !begun(c, n.Rank) {
			out = append(out, fmt.Sprintf("rank %d is %s", n.Rank, n.State))
		}
	}
	return strings.Join(out, ", ")
}

// keptMeanwhile looks once more for a run that could not be streamed. Its container may just be on its way out: then the
// run's log is stored by now, or its host still has what it kept of it before it began to remove.
func (r *Reader) keptMeanwhile(ctx context.Context, q Query, rank int, l *cluster.LiveLog, cause error) (again *cluster.Log, kept []Line, err error) {
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
	kept, err = r.run(ctx, rank, *l, agentapi.PurposeKeptLog)
	if err != nil {
		return nil, nil, nil // the first failure is the one to tell
	}
	return nil, kept, nil
}

// run reads one run from its host, as far as it goes: with an error, the lines before it.
func (r *Reader) run(ctx context.Context, rank int, l cluster.LiveLog, purpose string) (lines []Line, err error) {
	_, err = r.stream(ctx, rank, l, agentapi.Dial{LeaseRef: l.Ref, Purpose: purpose}, func(line Line) bool {
		lines = append(lines, line)
		return true
	})
	return lines, err
}

// stored are the lines of a rank's kept logs, in the order of its runs.
func stored(log cluster.Log, rank int) []Line {
	var out []Line
	for _, run := range log.Runs {
		for raw := range bytes.Lines(run.Content) {
			l := Line{Rank: rank, Epoch: run.Epoch}
			if json.Unmarshal(raw, &l.LogFrame) == nil {
				out = append(out, l)
			}
		}
	}
	return out
}

// stream calls each for every line that the host sends, until it returns false, the stream ends, or ctx does. Whole says
// that the stream ended by itself.
func (r *Reader) stream(ctx context.Context, rank int, l cluster.LiveLog, d agentapi.Dial, each func(Line) bool) (whole bool, err error) {
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
