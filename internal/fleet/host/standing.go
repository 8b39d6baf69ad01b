package host

import (
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/musterhq/muster/internal/interval"
)

// Standing is what the status page shows of the platform: facts that it measures about itself.
type Standing struct {
	Hosts     int // not retired
	Connected int // of these: connected, with a report within the last minute
	// Interruptions are the times since the requested one in which the platform could not receive hosts' reports, newest
	// first. Workloads keep running through an interruption.
	Interruptions []Interruption
}

// Interruption is a time in which the platform could not receive hosts' reports, including the time that hosts need to
// reconnect.
type Interruption struct {
	From time.Time
	To   time.Time // zero: it is not over
}

// Standing returns the platform's standing, with the interruptions that ended after since.
func (h *Hosts) Standing(ctx context.Context, since time.Time) (Standing, error) {
	n, err := h.db.Q.CountHosts(ctx)
	if err != nil {
		return Standing{}, fmt.Errorf("count hosts: %w", err)
	}
	rows, err := h.db.Q.DeafTime(ctx, since.UnixMilli(), PulseGap.Milliseconds())
	if err != nil {
		return Standing{}, fmt.Errorf("read interruptions: %w", err)
	}
	spans := make([]interval.Span, len(rows))
	for i, r := range rows {
		spans[i] = interval.Span{Start: r.FromMs, End: r.ToMs}
	}
	s := Standing{Hosts: int(n.Hosts), Connected: int(n.Connected)}
	for _, g := range interval.Of(spans...) { // sorted and disjoint: listeners that fail together are one interruption
		i := Interruption{From: time.UnixMilli(g.Start)}
		if g.End != math.MaxInt64 {
			i.To = time.UnixMilli(g.End)
		}
		s.Interruptions = append(s.Interruptions, i)
	}
	slices.Reverse(s.Interruptions)
	return s, nil
}
