package container

import (
	"testing"
	"time"
)

// An exit is the daemon's doing between the last ping that it answered before an outage and the first after.
func TestAnExitIsTheDaemonsWhenTheyCoincide(t *testing.T) {
	t.Parallel()
	t0 := time.Unix(1e9, 0)
	at := func(s int) time.Time { return t0.Add(time.Duration(s) * time.Second) }
	check := func(o *outages, when string, want map[int]bool) {
		t.Helper()
		for s, want := range want {
			if got := o.covers(at(s)); got != want {
				t.Errorf("%s, an exit at %d s: %v", when, s, got)
			}
		}
	}
	var o outages
	o.answer(at(100), at(100), at(0), true)
	if o.answeredAfter(at(100)) || !o.answeredAfter(at(99)) {
		t.Error("when the last ping was answered")
	}
	if !o.silence(at(104), true, "refused") || o.silence(at(106), true, "refused") {
		t.Error("it is away once")
	}
	check(&o, "while it is away", map[int]bool{0: false, 96: false, 99: true, 100: true, 150: true})
	if !o.answer(at(119), at(120), at(118), true) {
		t.Error("it is back")
	}
	check(&o, "after it came back", map[int]bool{96: false, 99: true, 110: true, 122: true, 124: false})

	// One that was only slow, perhaps because of the renter's program, has stopped nothing.
	var slow outages
	slow.answer(at(100), at(100), at(0), true)
	if slow.silence(at(102), false, "timeout") || !slow.silence(at(107), false, "timeout") {
		t.Error("one slow answer is not an outage, two are")
	}
	slow.answer(at(120), at(120), at(0), true)
	check(&slow, "slow", map[int]bool{99: false, 110: false, 121: false})

	// One that hung and was started again has.
	var restarted outages
	restarted.answer(at(100), at(100), at(0), true)
	restarted.silence(at(102), false, "timeout")
	restarted.silence(at(107), false, "timeout")
	restarted.answer(at(120), at(120), at(118), true)
	check(&restarted, "restarted", map[int]bool{96: false, 110: true, 121: true, 124: false})
}

// An agent that was away itself goes by the daemon's age.
func TestAnExitThatNobodySaw(t *testing.T) {
	t.Parallel()
	at := func(s int) time.Time { return time.Unix(1e9+int64(s), 0) }
	for _, tc := range []struct {
		name                             string
		started, finished, daemon, agent int
		want                             bool
	}{
		{"the daemon runs since before", 100, 200, 50, 300, false},
		{"it ended with the daemon, the agent ran on", 100, 200, 210, 50, true},
		{"it ended long before the daemon's start, and the agent ran", 100, 200, 500, 50, false},
		{"both were stopped, and long away", 100, 200, 500, 510, true},
		{"the agent was stopped first", 100, 200, 500, 490, true},
		{"it was started by this daemon", 600, 700, 500, 650, false},
	} {
		c := Container{State: Exited, StartedAt: at(tc.started), FinishedAt: at(tc.finished)}
		if got := unwatched(c, at(tc.daemon), at(tc.agent)); got != tc.want {
			t.Errorf("%s: %t", tc.name, got)
		}
	}
}
