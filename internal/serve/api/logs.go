package api

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"golang.org/x/sync/errgroup"

	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/fleet/nodelog"
	"github.com/musterhq/muster/internal/id"
)

const (
	maxTail     = 100_000
	readTimeout = 10 * time.Second // for a reader that does not read: a stream must not hold us
)

// CutHeader of an answer with logs is there when lines are missing at its beginning, because there were too many for
// one answer or for what is kept of a run that has ended: "true; lines=56458; bytes=3387480", or "true" if their number
// is not known.
const CutHeader = "Muster-Cut"

// cutMark is the rank of a line that stands for those missing, before the first one.
const cutMark = -1

// logQuery selects logs.
type logQuery struct {
	nodelog.Query
	all    bool // of a cluster with several ranks: lines begin with the rank
	follow bool
	times  bool
	search nodelog.Search
}

// WaitingHeader of a response with logs names the ranks that cannot have printed anything yet, and what they are doing:
// "rank 0 is pulling, rank 1 is pending". It is missing if all may have printed.
const WaitingHeader = "Muster-Waiting"

func logParams() []*huma.Param {
	integer := &huma.Schema{Type: huma.TypeInteger}
	boolean := &huma.Schema{Type: huma.TypeBoolean}
	return []*huma.Param{
		{Name: "id", In: "path", Required: true, Schema: &huma.Schema{Type: huma.TypeString}},
		{
			Name:        "node",
			In:          "query",
			Schema:      integer,
			Description: "the rank; left out: all, each line with its rank before it",
		},
		{Name: "follow", In: "query", Schema: boolean, Description: "stay until the cluster has ended, through restarts"},
		{
			Name:   "tail",
			In:     "query",
			Schema: integer,
			Description: "lines from the end, of each rank; left out: all that is kept and one answer holds (header " +
				"Muster-Cut: lines are missing at the beginning, such as true; lines=56458; bytes=3387480)",
		},
		{
			Name:   "grep",
			In:     "query",
			Schema: &huma.Schema{Type: huma.TypeString},
			Description: "only lines that contain this text, in upper or lower case; tail counts these lines, and with follow " +
				"the lines among which is searched",
		},
		{Name: "timestamps", In: "query", Schema: boolean, Description: "begin each line with its time"},
	}
}

// stream writes text as it comes. Once the first byte is out, an error can only end the stream.
func (a clustersAPI) stream(w http.ResponseWriter, r *http.Request, p account.Principal,
	in *of[id.Cluster]) error {
	cl := in.ID
	c, err := a.clusters.Views.Get(r.Context(), p.Org, cl)
	if err != nil {
		return err
	}
	q, err := parseLogQuery(r, len(c.Nodes))
	if err != nil {
		return err
	}
	q.Org, q.Cluster = p.Org, cl
	q.follow = q.follow && r.Method != http.MethodHead
	out := &logWriter{w: w, ctl: http.NewResponseController(w), q: q}
	if why := nodelog.Waiting(c, q.Ranks); why != "" {
		w.Header().Set(WaitingHeader, why)
	}
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	lines := make(chan nodelog.Line, 64)
	var group errgroup.Group
	group.Go(func() error {
		defer close(lines)
		return a.collect(ctx, q, lines)
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
			if cut := l.CutBefore(); !out.begun && (l.Rank == cutMark || q.follow && cut.Any) {
				w.Header().Set(CutHeader, cutText(cut))
			}
			if l.Rank == cutMark {
				continue
			}
			if err := out.line(l); err != nil {
				cancel()
				for range lines { // end the readers
				}
				return nil
			}
		case <-time.After(time.Second):
			if q.follow {
				out.flush() // send headers, so that a follower knows it is connected
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
	q.Tail, q.follow, q.times = number("tail", -1, maxTail), truth("follow"), truth("timestamps")
	if err == nil {
		q.search, err = nodelog.NewSearch("query.grep", v.Get("grep"))
	}
	if node := number("node", -1, max(nodes-1, 0)); node >= 0 {
		q.Ranks = []int{node}
		return q, err
	}
	for rank := range nodes {
		q.Ranks = append(q.Ranks, rank)
	}
	q.all = nodes > 1
	return q, err
}

// collect sends the lines of all ranks: sorted by time when nothing is to be followed, else as they come.
func (a clustersAPI) collect(ctx context.Context, q logQuery, lines chan<- nodelog.Line) error {
	if q.follow {
		return a.logs.Follow(ctx, q.Query, nil, lines)
	}
	tail := q.Tail
	if !q.search.Any() {
		q.Tail = -1 // the tail is of the lines that are found
	}
	all, cut, err := a.logs.Present(ctx, q.Query)
	if err != nil {
		return err
	}
	all = q.search.Last(all, tail)
	if cut.Any {
		lines <- nodelog.Line{Rank: cutMark, LogFrame: agentapi.LogFrame{CutLines: cut.Lines, CutBytes: cut.Bytes}}
	}
	for _, l := range all {
		select {
		case lines <- l:
		case <-ctx.Done():
			return nil
		}
	}
	return nil
}

func cutText(cut nodelog.Cut) string {
	if cut.Lines == 0 {
		return "true"
	}
	return fmt.Sprintf("true; lines=%d; bytes=%d", cut.Lines, cut.Bytes)
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

func (o *logWriter) line(l nodelog.Line) error {
	o.begin()
	if !o.q.search.Finds(l.Line) {
		return nil
	}
	var b strings.Builder
	if o.q.times {
		b.WriteString(time.UnixMilli(l.TimeMS).UTC().Format("2006-01-02T15:04:05.000Z "))
	}
	if o.q.all {
		fmt.Fprintf(&b, "[%d] ", l.Rank)
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
