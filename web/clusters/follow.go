package clusters

import (
	"bytes"
	"context"
	"time"

	"github.com/musterhq/muster/internal/fleet/nodelog"
	"github.com/musterhq/muster/web/page"
)

const (
	followLines = 200 // of each rank, at the start of the stream
	batchLines  = 200 // lines sent to a page at once
	// how long a line waits for more: the browser lays out each batch, and may be slow
	batchTime = 250 * time.Millisecond
	beatEvery = 20 * time.Second // keeps proxies from closing a quiet stream, and notices a page that is gone
)

// followLogs streams lines as they are printed, from every rank requested and across restarts, until nothing more can
// come or the page is closed. A page that reconnects resumes where it was: the browser sends the id of the last event,
// which is a nodelog.Position.
func (s *Pages) followLogs(v *page.Visit) error {
	q, search, err := s.logRequest(v)
	if err != nil {
		return err
	}
	if q.Tail = followLines; !search.Any() {
		q.Tail = searchLines
	}
	ctx, cancel, err := s.openStream(v)
	if err != nil {
		return err
	}
	defer cancel()
	at := nodelog.ParsePosition(v.R.Header.Get("Last-Event-ID"))
	page := &logPage{e: openEvents(v.W), at: at, search: search}
	lines, over := make(chan nodelog.Line), make(chan error, 1)
	from := at.Clone() // at is the position of the page, Follow's that of the reader
	go func() { over <- s.logs.Follow(ctx, q, from, lines) }()
	if err := page.stream(ctx, lines, over); err != nil {
		return s.dropped(v, err)
	}
	return nil
}

// logPage is one page that follows logs.
type logPage struct {
	e      *events
	at     nodelog.Position
	search nodelog.Search
	batch  []nodelog.Line
}

func (p *logPage) stream(ctx context.Context, lines <-chan nodelog.Line, over <-chan error) (err error) {
	beat, flush := time.NewTicker(beatEvery), time.NewTicker(batchTime)
	defer beat.Stop()
	defer flush.Stop()
	for err == nil {
		select {
		case line := <-lines:
			p.batch = append(p.batch, line)
			if len(p.batch) >= batchLines {
				err = p.flush(ctx)
			}
		case <-flush.C:
			err = p.flush(ctx)
		case <-beat.C:
			err = p.e.send("beat", "")
		case err = <-over:
			if err != nil || ctx.Err() != nil {
				return err
			}
			if err = p.flush(ctx); err != nil {
				return err
			}
			return p.e.send("ended", "")
		case <-ctx.Done():
			return nil
		}
	}
	return err
}

// flush sends the received lines in order of time, and updates the position of the page.
func (p *logPage) flush(ctx context.Context) error {
	if len(p.batch) == 0 {
		return nil
	}
	nodelog.Merge(p.batch)
	var lines []LogLine
	for _, l := range p.batch {
		if p.at.Take(l); p.search.Finds(l.Line) {
			lines = append(lines, logLine(l, p.search))
		}
	}
	if p.batch = p.batch[:0]; len(lines) == 0 {
		return nil
	}
	var b bytes.Buffer
	if err := LogLines(lines).Render(ctx, &b); err != nil {
		return err
	}
	return p.e.sendAt(p.at.String(), "line", b.String())
}
