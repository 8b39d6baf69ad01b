package clusters

import (
	"context"
	"fmt"
	"html"
	"io"
	"time"

	"github.com/a-h/templ"
	"github.com/go-chi/chi/v5"

	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/fleet/nodelog"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/web/page"
)

const pageLines = 500 // stored lines shown on the page

// searchLines is among how many lines of each rank a page that follows a log searches at first.
const searchLines = 20_000

func logLine(l nodelog.Line, s nodelog.Search) LogLine {
	return LogLine{
		Time: time.UnixMilli(l.TimeMS).UTC().Format("15:04:05.000"),
		Rank: l.Rank,
		Text: s.Split(l.Line),
		Err:  l.Stderr,
	}
}

// tailLogs adds the end of the stored logs to the page of an ended cluster. The page of a live cluster follows instead:
// the stream begins with the tail, and names the ranks that cannot have printed anything yet.
func (s *Pages) tailLogs(ctx context.Context, org id.Org, cl id.Cluster, c *Cluster) error {
	search, err := nodelog.NewSearch("grep", c.Grep)
	if err != nil {
		return err
	}
	q := nodelog.Query{Org: org, Cluster: cl, Ranks: ranks(c.LogRank, c.Ranks), Tail: pageLines}
	if !search.Any() {
		q.Tail = -1
	}
	lines, _, more, err := s.logs.Kept(ctx, q)
	if err != nil {
		return err
	}
	c.Following = more || !c.Ended
	if c.Following {
		now, err := s.Clusters.Views.Get(ctx, org, cl)
		if err == nil {
			c.LogWaits = nodelog.Waiting(now, ranks(c.LogRank, c.Ranks))
		}
		return err
	}
	lines = search.Last(lines, pageLines)
	for _, l := range lines[max(0, len(lines)-pageLines):] {
		c.Logs = append(c.Logs, logLine(l, search))
	}
	return nil
}

// ranks returns the rank requested, or all n ranks for -1.
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

// downloadLogs sends the stored log as plain text, each line with its time and rank.
func (s *Pages) downloadLogs(v *page.Visit) error {
	q, search, err := s.logRequest(v)
	if err != nil {
		return err
	}
	q.Tail = -1
	lines, cut, _, err := s.logs.Kept(v.R.Context(), q)
	if err != nil {
		return err
	}
	v.W.Header().Set("Content-Type", "text/plain; charset=utf-8")
	v.W.Header().Set("Content-Disposition", fmt.Sprintf("attachment; filename=%s.log", q.Cluster))
	if cut.Lines > 0 {
		fmt.Fprintf(v.W, "(%d lines, %d bytes, are missing here: they are not kept.)\n", cut.Lines, cut.Bytes)
	}
	for _, l := range search.Last(lines, -1) {
		if _, err := fmt.Fprintf(v.W, "%s %d %s\n", time.UnixMilli(l.TimeMS).UTC().Format(time.RFC3339Nano), l.Rank,
			l.Line); err != nil {
			return nil
		}
	}
	return nil
}

// logRequest returns which ranks the visitor wants to read, and what to search for.
func (s *Pages) logRequest(v *page.Visit) (q nodelog.Query, search nodelog.Search, err error) {
	cl, err := id.Parse[id.Cluster](chi.URLParam(v.R, "id"))
	if err != nil {
		return q, search, fault.New(fault.NotFound, "cluster not found")
	}
	c, err := s.Clusters.Views.Get(v.R.Context(), v.Who.Org, cl)
	if err != nil {
		return q, search, err
	}
	search, err = nodelog.NewSearch("grep", v.R.FormValue("grep"))
	return nodelog.Query{
		Org:     v.Who.Org,
		Cluster: cl,
		Ranks:   ranks(rankOf(v.R.FormValue("rank"), len(c.Nodes)), len(c.Nodes)),
	}, search, err
}

// marked writes the parts of a line and marks every second one. Nothing comes between them: a line is shown as it was
// printed.
func marked(parts []string) templ.Component {
	return templ.ComponentFunc(func(_ context.Context, w io.Writer) error {
		for i, p := range parts {
			p = html.EscapeString(p)
			if i%2 == 1 {
				p = "<mark>" + p + "</mark>"
			}
			if _, err := io.WriteString(w, p); err != nil {
				return err
			}
		}
		return nil
	})
}
