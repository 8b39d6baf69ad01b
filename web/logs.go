package web

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/go-chi/chi/v5"

	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/cluster"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/web/view"
)

const (
	pageLines   = 500 // kept lines shown on the page
	followLines = 200 // lines of each rank a follower begins with
	maxLine     = 64 << 10
)

// rankFrame is one line of one rank.
type rankFrame struct {
	rank int
	agentapi.LogFrame
}

func (f rankFrame) view() view.LogLine {
	return view.LogLine{Time: time.UnixMilli(f.TimeMS).UTC().Format("15:04:05.000"), Rank: f.rank, Text: f.Line, Err: f.Stderr}
}

// tailLogs puts the end of the kept logs on the page, and says whether there is more to follow live.
func (s *Web) tailLogs(ctx context.Context, org id.Org, cl id.Cluster, c *view.Cluster) error {
	frames, live, err := s.keptLogs(ctx, org, cl, ranks(c.LogRank, c.Ranks))
	if err != nil {
		return err
	}
	c.Following = len(live) > 0 && !c.Ended
	if c.Following {
		return nil // the stream begins with the tail
	}
	for _, f := range frames[max(0, len(frames)-pageLines):] {
		c.Logs = append(c.Logs, f.view())
	}
	return nil
}

// ranks is the one asked for, or all for -1.
func ranks(one, n int) []int {
	if one >= 0 {
		return []int{one}
	}
	all := make([]int, n)
	for i := range all {
		all[i] = i
	}
	return all
}

// keptLogs are the stored lines of the ranks in order of time, and where the present runs can be read.
func (s *Web) keptLogs(ctx context.Context, org id.Org, cl id.Cluster, of []int) (frames []rankFrame, live map[int]cluster.LiveLog, err error) {
	live = map[int]cluster.LiveLog{}
	for _, rank := range of {
		log, err := s.Clusters.Log(ctx, org, cl, rank)
		if err != nil {
			return nil, nil, err
		}
		for _, run := range log.Runs {
			for line := range bytes.Lines(run.Content) {
				f := rankFrame{rank: rank}
				if json.Unmarshal(line, &f.LogFrame) == nil {
					frames = append(frames, f)
				}
			}
		}
		if log.Live != nil {
			live[rank] = *log.Live
		}
	}
	slices.SortStableFunc(frames, func(a, b rankFrame) int { return int(a.TimeMS - b.TimeMS) })
	return frames, live, nil
}

// followLogs streams lines as they are printed, from every rank asked for, until the runs end or the page is closed.
func (s *Web) followLogs(v *visit) error {
	cl, of, err := s.logRequest(v)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(v.r.Context())
	defer cancel()
	_, live, err := s.keptLogs(ctx, v.who.Org, cl, of)
	if err != nil {
		return err
	}
	lines := make(chan rankFrame)
	done := make(chan error, len(live))
	for rank, l := range live {
		go func() { done <- s.readLive(ctx, rank, l, lines) }()
	}
	e := openEvents(v.w)
	beat := time.NewTicker(20 * time.Second) // keeps proxies from closing a quiet stream, and notices a page that is gone
	defer beat.Stop()
	for open := len(live); open > 0; {
		select {
		case f := <-lines:
			var b bytes.Buffer
			if err := view.LogLineView(f.view()).Render(ctx, &b); err != nil {
				return nil
			}
			if e.send("line", b.String()) != nil {
				return nil
			}
		case err := <-done:
			open--
			if err != nil && ctx.Err() == nil {
				s.Log.InfoContext(ctx, "log stream ended", "cluster", cl, "err", err)
			}
		case <-beat.C:
			if e.send("beat", "") != nil {
				return nil
			}
		case <-ctx.Done():
			return nil
		}
	}
	_ = e.send("ended", "")
	return nil
}

func (s *Web) readLive(ctx context.Context, rank int, l cluster.LiveLog, lines chan<- rankFrame) error {
	stream, err := s.Dialer.Open(ctx, l.Host, agentapi.Dial{LeaseRef: l.Ref, Purpose: agentapi.PurposeLogs, Tail: followLines, Follow: true})
	if err != nil {
		return err
	}
	defer stream.Close()
	stop := context.AfterFunc(ctx, func() { stream.Close() })
	defer stop()
	sc := bufio.NewScanner(stream)
	sc.Buffer(make([]byte, 4096), 2*maxLine)
	for sc.Scan() {
		f := rankFrame{rank: rank}
		if json.Unmarshal(sc.Bytes(), &f.LogFrame) != nil {
			continue // what a host sends is not to be trusted with the page
		}
		select {
		case lines <- f:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return sc.Err()
}

// downloadLogs is the kept log as plain text, each line with its time and rank.
func (s *Web) downloadLogs(v *visit) error {
	cl, of, err := s.logRequest(v)
	if err != nil {
		return err
	}
	frames, _, err := s.keptLogs(v.r.Context(), v.who.Org, cl, of)
	if err != nil {
		return err
	}
	v.w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	v.w.Header().Set("Content-Disposition", fmt.Sprintf("attachment; filename=%s.log", cl))
	for _, f := range frames {
		if _, err := fmt.Fprintf(v.w, "%s %d %s\n", time.UnixMilli(f.TimeMS).UTC().Format(time.RFC3339Nano), f.rank, f.Line); err != nil {
			return nil
		}
	}
	return nil
}

func (s *Web) logRequest(v *visit) (cl id.Cluster, of []int, err error) {
	cl, err = id.Parse[id.Cluster](chi.URLParam(v.r, "id"))
	if err != nil {
		return cl, nil, fault.New(fault.NotFound, "no such cluster")
	}
	c, err := s.Clusters.Get(v.r.Context(), v.who.Org, cl)
	if err != nil {
		return cl, nil, err
	}
	return cl, ranks(rankOf(v.r.FormValue("rank"), len(c.Nodes)), len(c.Nodes)), nil
}
