package web

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/bus"
	"github.com/musterhq/muster/internal/cluster"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/web/view"
)

const (
	followLines = 200 // of each rank, those a follower begins with
	maxLine     = 64 << 10
	batchLines  = 200                   // lines sent to a page at once
	batchTime   = 50 * time.Millisecond // how long a line waits for others
	lookEvery   = 2 * time.Second       // for runs that began or ended, when the bus does not tell
	beatEvery   = 20 * time.Second      // keeps proxies from closing a quiet stream, and notices a page that is gone
)

// reached is how far a page is in the output of one rank: the run, the time of the last line, and how many lines of
// that very millisecond it has. A page that lost its stream goes on from there: nothing twice, nothing left out.
type reached struct {
	epoch  int
	timeMS int64
	lines  int
}

// position is how far a page is in the output of all ranks.
type position map[int]reached

// String and parsePosition are what the browser keeps as the id of the last event: rank.epoch.ms.lines, by commas.
func (p position) String() string {
	var parts []string
	for rank, r := range p {
		parts = append(parts, fmt.Sprintf("%d.%d.%d.%d", rank, r.epoch, r.timeMS, r.lines))
	}
	return strings.Join(parts, ",")
}

// parsePosition reads what a browser sent; what is not of ours is no position.
func parsePosition(text string) position {
	p := position{}
	for part := range strings.SplitSeq(text, ",") {
		n := strings.Split(part, ".")
		if len(n) != 4 {
			continue
		}
		rank, err1 := strconv.Atoi(n[0])
		epoch, err2 := strconv.Atoi(n[1])
		ms, err3 := strconv.ParseInt(n[2], 10, 64)
		lines, err4 := strconv.Atoi(n[3])
		if cmp.Or(err1, err2, err3, err4) == nil {
			p[rank] = reached{epoch, ms, lines}
		}
	}
	return p
}

// replay filters a run that is read again from some way back: it lets pass what the page has not.
type replay struct {
	reached
	lines int // seen of the millisecond reached
}

func (r *replay) fresh(f frame) bool {
	switch {
	case f.epoch != r.epoch:
		return f.epoch > r.epoch
	case f.TimeMS == r.timeMS:
		r.lines++
		return r.lines > r.reached.lines
	}
	return f.TimeMS > r.timeMS
}

// follower streams one cluster's output to one page.
type follower struct {
	web   *Web
	who   account.Principal
	cl    id.Cluster
	of    []int
	e     *events
	at    position
	lines chan frame
	done  chan int // rank whose stream ended
	open  map[int]bool
	again map[int]*replay // of open streams
	batch []frame
}

// followLogs streams lines as they are printed, from every rank asked for and over restarts, until nothing more can
// come or the page is closed.
func (s *Web) followLogs(v *visit) error {
	cl, of, err := s.logRequest(v)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(v.r.Context())
	defer cancel()
	f := &follower{
		web: s, who: v.who, cl: cl, of: of, e: openEvents(v.w), at: parsePosition(v.r.Header.Get("Last-Event-ID")),
		lines: make(chan frame), done: make(chan int), open: map[int]bool{}, again: map[int]*replay{},
	}
	if err := f.run(ctx); err != nil {
		return s.dropped(v, err)
	}
	return nil
}

func (f *follower) run(ctx context.Context) error {
	changes := f.web.Bus.Watch(ctx, bus.TopicCluster(f.cl))
	look, beat, flush := time.NewTicker(lookEvery), time.NewTicker(beatEvery), time.NewTicker(batchTime)
	defer look.Stop()
	defer beat.Stop()
	defer flush.Stop()
	over, err := f.look(ctx)
	for err == nil && !(over && len(f.open) == 0) {
		select {
		case line := <-f.lines:
			if f.again[line.rank].fresh(line) {
				f.batch = append(f.batch, line)
			}
			if len(f.batch) >= batchLines {
				err = f.flush(ctx)
			}
		case rank := <-f.done:
			delete(f.open, rank)
		case <-flush.C:
			err = f.flush(ctx)
		case <-beat.C:
			err = f.e.send("beat", "")
		case <-changes:
			over, err = f.lookAgain(ctx, over)
		case <-look.C:
			over, err = f.lookAgain(ctx, over)
		case <-ctx.Done():
			return nil
		}
	}
	if err == nil {
		_, err = f.look(ctx) // what was stored since
	}
	if err == nil {
		err = f.flush(ctx)
	}
	if err != nil {
		return err
	}
	return f.e.send("ended", "")
}

// lookAgain looks when there is a rank that is not being read: reading what is stored costs something.
func (f *follower) lookAgain(ctx context.Context, over bool) (bool, error) {
	if len(f.open) == len(f.of) {
		return over, nil
	}
	return f.look(ctx)
}

// look adds what was stored meanwhile, and opens the streams of runs that are not being read. It says whether nothing
// more will come but from open streams.
func (f *follower) look(ctx context.Context) (over bool, err error) {
	c, err := f.web.Clusters.Get(ctx, f.who.Org, f.cl)
	if err != nil {
		return false, err
	}
	frames, live, err := f.web.keptLogs(ctx, f.who.Org, f.cl, f.of)
	if err != nil {
		return false, err
	}
	again := map[int]*replay{}
	for _, rank := range f.of {
		again[rank] = &replay{reached: f.at[rank]}
	}
	kept := frames[:0]
	for _, line := range frames {
		if _, reading := f.open[line.rank]; !reading && again[line.rank].fresh(line) {
			kept = append(kept, line)
		}
	}
	f.batch = append(f.batch, kept[max(0, len(kept)-pageLines):]...)
	if err := f.flush(ctx); err != nil {
		return false, err
	}
	for _, n := range c.Nodes {
		l, ok := live[n.Rank]
		if _, reading := f.open[n.Rank]; ok && !reading && hasRun(n) {
			f.open[n.Rank], f.again[n.Rank] = true, &replay{reached: f.at[n.Rank]}
			go f.read(ctx, n.Rank, l)
		}
	}
	return c.State.Final() && len(live) == 0, nil
}

// hasRun reports whether the node's command may have printed something.
func hasRun(n cluster.Node) bool {
	switch n.State {
	case cluster.NodePending, cluster.NodePulling, cluster.NodeStarting, cluster.NodeJoining:
		return false
	}
	return true
}

// flush sends the lines that have come, in order of time, and notes how far the page is now.
func (f *follower) flush(ctx context.Context) error {
	if len(f.batch) == 0 {
		return nil
	}
	sortByTime(f.batch)
	lines := make([]view.LogLine, len(f.batch))
	for i, line := range f.batch {
		lines[i] = line.view()
		r := f.at[line.rank]
		if r.epoch != line.epoch || r.timeMS != line.TimeMS {
			r = reached{line.epoch, line.TimeMS, 0}
		}
		r.lines++
		f.at[line.rank] = r
	}
	f.batch = f.batch[:0]
	var b bytes.Buffer
	if err := view.LogLines(lines).Render(ctx, &b); err != nil {
		return err
	}
	return f.e.sendAt(f.at.String(), "line", b.String())
}

// read streams one run from its host.
func (f *follower) read(ctx context.Context, rank int, l cluster.LiveLog) {
	if err := f.stream(ctx, rank, l); err != nil && ctx.Err() == nil {
		f.web.Log.InfoContext(ctx, "log stream ended", "cluster", f.cl, "rank", rank, "err", err)
	}
	select {
	case f.done <- rank:
	case <-ctx.Done():
	}
}

func (f *follower) stream(ctx context.Context, rank int, l cluster.LiveLog) error {
	stream, err := f.web.Dialer.Open(ctx, l.Host, agentapi.Dial{LeaseRef: l.Ref, Purpose: agentapi.PurposeLogs, Tail: followLines, Follow: true})
	if err != nil {
		return err
	}
	defer stream.Close()
	stop := context.AfterFunc(ctx, func() { stream.Close() })
	defer stop()
	sc := bufio.NewScanner(stream)
	sc.Buffer(make([]byte, 4096), 2*maxLine)
	for sc.Scan() {
		line := frame{rank: rank, epoch: l.Ref.Epoch}
		if json.Unmarshal(sc.Bytes(), &line.LogFrame) != nil {
			continue // what a host sends is not to be trusted with the page
		}
		select {
		case f.lines <- line:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return sc.Err()
}
