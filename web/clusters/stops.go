package clusters

import (
	"time"

	"github.com/musterhq/muster/internal/fleet/cluster"
	"github.com/musterhq/muster/web/view"
)

// Stops is when a cluster stops, in words. All places of the pages that show it take it from here.
type Stops struct {
	Label  string // "Stops in", "Stopped"
	Value  string // "1 h 43 min"
	Note   string // "14:05: its budget is used up"
	Ahead  string // how far time is paid ahead, for the curious; "" = not shown
	Phrase string // "Stops at 14:05: its budget is used up"; "" = nothing is known to stop it
}

func stops(c cluster.Cluster, now time.Time) Stops {
	switch {
	case c.State.Ended():
		out := Stops{Label: "Stopped", Value: "–", Note: c.Reason.Happened()}
		if c.EndedAt != nil {
			out.Value = view.Clock(*c.EndedAt, now)
		}
		return out
	case c.StopsAt == nil:
		return Stops{Label: "Stops", Value: "not in sight", Note: "money lasts for more than a year"}
	}
	at := minuteClock(*c.StopsAt, now)
	out := Stops{Label: "Stops in", Value: view.Dur(c.StopsAt.Sub(now)), Note: at + ": " + c.StopsBecause.Why(),
		Phrase: "Stops at " + at + ": " + c.StopsBecause.Why()}
	if c.RunUntil != nil {
		out.Ahead = "Time is paid ahead through " + view.Clock(*c.RunUntil, now) + " and extended while money lasts."
	}
	return out
}

// minuteClock formats a time that is more than ten minutes away without seconds, because it is an estimate.
func minuteClock(t, now time.Time) string {
	s := view.Clock(t, now)
	if t.Sub(now) > 10*time.Minute {
		return s[:len(s)-len(":05")]
	}
	return s
}
