package web

import (
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

const pageLines = 500 // kept lines shown on the page

// frame is one line of one run of a rank.
type frame struct {
	rank, epoch int
	agentapi.LogFrame
}

func (f frame) view() view.LogLine {
	return view.LogLine{Time: time.UnixMilli(f.TimeMS).UTC().Format("15:04:05.000"), Rank: f.rank, Text: f.Line, Err: f.Stderr}
}

// tailLogs puts the end of the kept logs on the page of a cluster that has ended. While it lives, the page follows: the
// stream begins with the tail.
func (s *Web) tailLogs(ctx context.Context, org id.Org, cl id.Cluster, c *view.Cluster) error {
	frames, live, err := s.keptLogs(ctx, org, cl, ranks(c.LogRank, c.Ranks))
	if err != nil {
		return err
	}
	c.Following = len(live) > 0 || !c.Ended
	if c.Following {
		return nil
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
func (s *Web) keptLogs(ctx context.Context, org id.Org, cl id.Cluster, of []int) (frames []frame, live map[int]cluster.LiveLog, err error) {
	live = map[int]cluster.LiveLog{}
	for _, rank := range of {
		log, err := s.Clusters.Log(ctx, org, cl, rank)
		if err != nil {
			return nil, nil, err
		}
		for _, run := range log.Runs {
			for line := range bytes.Lines(run.Content) {
				f := frame{rank: rank, epoch: run.Epoch}
				if json.Unmarshal(line, &f.LogFrame) == nil {
					frames = append(frames, f)
				}
			}
		}
		if log.Live != nil {
			live[rank] = *log.Live
		}
	}
	sortByTime(frames)
	return frames, live, nil
}

func sortByTime(frames []frame) {
	slices.SortStableFunc(frames, func(a, b frame) int { return int(a.TimeMS - b.TimeMS) })
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
