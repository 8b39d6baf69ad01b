package api

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/go-chi/chi/v5"
	"golang.org/x/sync/errgroup"

	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/bus"
	"github.com/musterhq/muster/internal/cluster"
	"github.com/musterhq/muster/internal/dialback"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
)

const (
	maxTail     = 100_000
	maxLogLine  = 256 << 10
	readTimeout = 10 * time.Second // for a reader that does not read: a stream must not hold us
	quietFor    = 25 * time.Second // between looks at a log that has not begun or has broken off
	hostAnswers = 10 * time.Second // for a host to dial back
)

// opener opens a stream from a host.
type opener func(ctx context.Context, host id.Host, d agentapi.Dial) (io.ReadCloser, error)

func dialled(x *dialback.Dialer) opener {
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

// logLine is one line of one rank.
type logLine struct {
	rank int
	agentapi.LogFrame
}

// logQuery is what is asked for.
type logQuery struct {
	ranks  []int
	all    bool // of a cluster with more than one: lines say whose they are
	follow bool
	tail   int // lines per rank; -1 = all there are
	times  bool
}

func logParams() []*huma.Param {
	integer := &huma.Schema{Type: huma.TypeInteger}
	boolean := &huma.Schema{Type: huma.TypeBoolean}
	return []*huma.Param{
		{Name: "id", In: "path", Required: true, Schema: &huma.Schema{Type: huma.TypeString}},
		{Name: "node", In: "query", Schema: integer, Description: "the rank; left out: all, each line with its rank before it"},
		{Name: "follow", In: "query", Schema: boolean, Description: "stay until the cluster has ended, through restarts"},
		{Name: "tail", In: "query", Schema: integer, Description: "lines from the end, of each rank; left out: all"},
		{Name: "timestamps", In: "query", Schema: boolean, Description: "begin each line with its time"},
	}
}

// clusterLogs writes text as it comes. Once the first byte is out, an error can only end the stream.
func (a *API) clusterLogs(w http.ResponseWriter, r *http.Request, p account.Principal) error {
	cl, err := pathID[id.Cluster](chi.URLParam(r, "id"), "cluster")
	if err != nil {
		return err
	}
	c, err := a.clusters.Get(r.Context(), p.Org, cl)
	if err != nil {
		return err
	}
	q, err := parseLogQuery(r, len(c.Nodes))
	if err != nil {
		return err
	}
	out := &logWriter{w: w, ctl: http.NewResponseController(w), q: q}
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	lines := make(chan logLine, 64)
	var group errgroup.Group
	group.Go(func() error {
		defer close(lines)
		return a.collect(ctx, p.Org, cl, q, lines)
	})
	for {
		select {
		case l, open := <-lines:
			if !open {
				err := group.Wait()
				if err != nil && !out.begun {
					return err
				}
				return out.end()
			}
			if err := out.line(l); err != nil {
				cancel()
				for range lines { // let the readers notice
				}
				return nil
			}
		case <-time.After(time.Second):
			if q.follow {
				out.flush() // headers, so that a follower knows it is heard
			}
		}
	}
}

func parseLogQuery(r *http.Request, nodes int) (q logQuery, err error) {
	v := r.URL.Query()
	number := func(name string, fallback, most int) int {
		if err != nil || v.Get(name) == "" {
			return fallback
		}
		n, perr := strconv.Atoi(v.Get(name))
		if perr != nil || n < 0 || n > most {
			err = fault.InvalidField("query."+name, "has to be a whole number from 0 to %d", most)
		}
		return n
	}
	truth := func(name string) bool {
		if err != nil || v.Get(name) == "" {
			return false
		}
		b, perr := strconv.ParseBool(v.Get(name))
		if perr != nil {
			err = fault.InvalidField("query."+name, "has to be true or false")
		}
		return b
	}
	q.tail, q.follow, q.times = number("tail", -1, maxTail), truth("follow"), truth("timestamps")
	if node := number("node", -1, max(nodes-1, 0)); node >= 0 {
		q.ranks = []int{node}
		return q, err
	}
	for rank := range nodes {
		q.ranks = append(q.ranks, rank)
	}
	q.all = nodes > 1
	return q, err
}

// collect sends the lines of all ranks: sorted by time when nothing is to be followed, else as they come.
func (a *API) collect(ctx context.Context, org id.Org, cl id.Cluster, q logQuery, lines chan<- logLine) error {
	if q.follow {
		group, ctx := errgroup.WithContext(ctx)
		for _, rank := range q.ranks {
			group.Go(func() error { return a.follow(ctx, org, cl, rank, q.tail, lines) })
		}
		return group.Wait()
	}
	var all []logLine
	for _, rank := range q.ranks {
		part, err := a.present(ctx, org, cl, rank)
		if err != nil {
			return err
		}
		if q.tail >= 0 {
			part = part[max(0, len(part)-q.tail):]
		}
		all = append(all, part...)
	}
	slices.SortStableFunc(all, func(x, y logLine) int { return cmp.Compare(x.TimeMS, y.TimeMS) })
	for _, l := range all {
		if !send(ctx, lines, l) {
			return nil
		}
	}
	return nil
}

// present is what a rank has printed so far: the kept logs of its ended runs, then the present run as its host tells.
func (a *API) present(ctx context.Context, org id.Org, cl id.Cluster, rank int) ([]logLine, error) {
	log, err := a.clusters.Log(ctx, org, cl, rank)
	if err != nil {
		return nil, err
	}
	out := kept(log, rank)
	if log.Live == nil {
		return out, nil
	}
	_, err = a.live(ctx, *log.Live, 0, false, func(f agentapi.LogFrame) bool {
		out = append(out, logLine{rank, f})
		return true
	})
	if fault.Is(err, fault.Unavailable) && len(out) > 0 {
		err = nil // the host is away or has not begun: what is kept is what there is
	}
	return out, err
}

func kept(log cluster.Log, rank int) []logLine {
	var out []logLine
	for _, run := range log.Runs {
		for raw := range bytes.Lines(run.Content) {
			l := logLine{rank: rank}
			if json.Unmarshal(raw, &l.LogFrame) == nil {
				out = append(out, l)
			}
		}
	}
	return out
}

// follow sends a rank's lines until the cluster has ended and its log is read to the end. A host that is away, a run
// that has not begun, and a restart are waited for; a stream that broke off is taken up where it ended.
func (a *API) follow(ctx context.Context, org id.Org, cl id.Cluster, rank, tail int, lines chan<- logLine) error {
	changes := a.bus.Watch(ctx, bus.TopicCluster(cl))
	mark := position{}
	first := true
	var quiet time.Time // since when an ended cluster's last lines have been out of reach
	for {
		log, err := a.clusters.Log(ctx, org, cl, rank)
		if err != nil {
			return err
		}
		c, err := a.clusters.Get(ctx, org, cl)
		if err != nil {
			return err
		}
		old := kept(log, rank)
		if first && tail >= 0 {
			old = old[max(0, len(old)-tail):]
		}
		mark.rewind()
		for _, l := range old {
			if mark.passed(l.LogFrame) && !send(ctx, lines, l) {
				return nil
			}
		}
		finished := log.Live == nil
		if log.Live != nil {
			want := 0
			if first && tail >= 0 {
				want = max(tail-len(old), 1)
			}
			whole, err := a.live(ctx, *log.Live, want, true, func(f agentapi.LogFrame) bool {
				return !mark.passed(f) || send(ctx, lines, logLine{rank, f})
			})
			if err != nil && !fault.Is(err, fault.Unavailable) {
				return err
			}
			finished = whole && c.State.Ended()
			first = first && err != nil // the tail is still owed
		}
		if c.State.Ended() && quiet.IsZero() {
			quiet = time.Now()
		}
		if ctx.Err() != nil || (finished && c.State.Ended()) || (!quiet.IsZero() && time.Since(quiet) > quietFor) {
			return nil
		}
		select {
		case <-ctx.Done():
			return nil
		case <-changes:
		case <-time.After(time.Second):
		}
	}
}

// position is how far a rank's output was sent, by time and by the number of lines of that very millisecond.
type position struct {
	ms         int64
	sent, seen int
}

// rewind prepares for reading the rank's output once more.
func (p *position) rewind() { p.seen = 0 }

// passed reports whether f is new, and moves on if it is.
func (p *position) passed(f agentapi.LogFrame) bool {
	switch {
	case f.TimeMS < p.ms:
		return false
	case f.TimeMS > p.ms:
		p.ms, p.sent, p.seen = f.TimeMS, 1, 1
		return true
	}
	if p.seen++; p.seen <= p.sent {
		return false
	}
	p.sent = p.seen
	return true
}

// live reads a run's output from its host: its last tail lines (0 = all). whole says that it ended by itself.
func (a *API) live(ctx context.Context, l cluster.LiveLog, tail int, follow bool, each func(agentapi.LogFrame) bool) (whole bool, err error) {
	dialCtx, cancel := context.WithTimeout(ctx, hostAnswers)
	s, err := a.open(dialCtx, l.Host, agentapi.Dial{LeaseRef: l.Ref, Purpose: agentapi.PurposeLogs, Tail: tail, Follow: follow})
	cancel()
	if err != nil {
		return false, err
	}
	defer s.Close()
	stop := context.AfterFunc(ctx, func() { s.Close() })
	defer stop()
	scan := bufio.NewScanner(s)
	scan.Buffer(make([]byte, 0, 4096), maxLogLine)
	for scan.Scan() {
		var f agentapi.LogFrame
		if json.Unmarshal(scan.Bytes(), &f) != nil {
			continue // what a host sends is not trusted
		}
		if !each(f) {
			return false, nil
		}
	}
	if err := scan.Err(); err != nil && ctx.Err() == nil {
		return false, fault.Wrap(err, fault.Unavailable, "the log stream of host %s broke off", l.Host.Short())
	}
	return ctx.Err() == nil, nil
}

func send(ctx context.Context, lines chan<- logLine, l logLine) bool {
	select {
	case lines <- l:
		return true
	case <-ctx.Done():
		return false
	}
}

// logWriter writes lines as text.
type logWriter struct {
	w     http.ResponseWriter
	ctl   *http.ResponseController
	q     logQuery
	begun bool
}

func (o *logWriter) begin() {
	if !o.begun {
		o.begun = true
		o.w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		o.w.Header().Set("X-Accel-Buffering", "no")
	}
	_ = o.ctl.SetWriteDeadline(time.Now().Add(readTimeout))
}

func (o *logWriter) line(l logLine) error {
	o.begin()
	var b strings.Builder
	if o.q.times {
		b.WriteString(time.UnixMilli(l.TimeMS).UTC().Format("2006-01-02T15:04:05.000Z "))
	}
	if o.q.all {
		fmt.Fprintf(&b, "[%d] ", l.rank)
	}
	b.WriteString(l.Line)
	b.WriteByte('\n')
	if _, err := o.w.Write([]byte(b.String())); err != nil {
		return err
	}
	if o.q.follow {
		return o.ctl.Flush()
	}
	return nil
}

func (o *logWriter) flush() {
	o.begin()
	_ = o.ctl.Flush()
}

// end leaves the connection as it was, for the next request on it.
func (o *logWriter) end() error {
	o.begin()
	_ = o.ctl.SetWriteDeadline(time.Time{})
	return nil
}
