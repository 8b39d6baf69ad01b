package nodelog_test

import (
	"context"
	"fmt"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/fleet/cluster"
	"github.com/musterhq/muster/internal/fleet/cluster/lifecycle"
	"github.com/musterhq/muster/internal/fleet/nodelog"
	"github.com/musterhq/muster/internal/id"
)

// followed is all that Follow sends.
func followed(ctx context.Context, t *testing.T, f *fleet, q nodelog.Query, from nodelog.Position) []nodelog.Line {
	t.Helper()
	out := make(chan nodelog.Line)
	over := make(chan error, 1)
	go func() {
		defer close(out)
		over <- f.reader().Follow(ctx, q, from, out)
	}()
	var got []nodelog.Line
	for l := range out {
		got = append(got, l)
	}
	if err := <-over; err != nil || ctx.Err() != nil {
		t.Fatal(err, ctx.Err())
	}
	return got
}

// TestAPositionHoldsAcrossStarts: whatever line a reader lost its stream after, it gets the others once. The second run
// is on a host whose clock is behind, and the first one's clock was set back in between.
func TestAPositionHoldsAcrossStarts(t *testing.T) {
	t.Parallel()
	first := []line{{1000, "a"}, {2000, "b"}, {2000, "c"}, {1500, "d"}, {2000, "e"}, {2500, "f"}}
	second := []line{{10, "g"}, {10, "h"}, {20, "i"}, {2000, "j"}, {2500, "k"}}
	all := []string{"a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k"}
	for _, stored := range []bool{true, false} {
		log := cluster.Log{Runs: []cluster.RunLog{run(1, first...), run(2, second...)}}
		if !stored {
			log = cluster.Log{Runs: log.Runs[:1], Live: live(2)}
		}
		f := &fleet{state: lifecycle.Released, logs: map[int]cluster.Log{3: log}}
		f.serve = func(d agentapi.Dial, w io.Writer) error {
			_, err := io.WriteString(w, frames(second...))
			return err
		}
		q := nodelog.Query{Ranks: []int{3}, Tail: -1}
		whole := followed(patiently(t), t, f, q, nil)
		same(t, whole, all...)
		for had := 1; had <= len(whole); had++ {
			t.Run(fmt.Sprintf("stored=%t/after %d", stored, had), func(t *testing.T) {
				at := nodelog.Position{}
				for _, l := range whole[:had] {
					at.Take(l)
				}
				again := q
				again.Tail = 1 // is for readers that begin
				same(t, followed(patiently(t), t, f, again, nodelog.ParsePosition(at.String())), all[had:]...)
			})
		}
	}
}

func TestWhatIsNoPosition(t *testing.T) {
	t.Parallel()
	at := nodelog.ParsePosition("nonsense,1.2.3,1.2.3.x,0.0.5.1,7.1.-5.2")
	if at.String() != "7.1.-5.2" {
		t.Errorf("got %q", at)
	}
}

// TestFollowThroughARestart: a stream breaks off, the run ends, the next one starts with a clock behind, the cluster
// ends, and with it the following.
func TestFollowThroughARestart(t *testing.T) {
	t.Parallel()
	first := []line{{1000, "a"}, {1000, "b"}, {1001, "c"}}
	second := []line{{5, "d"}, {6, "e"}}
	f := &fleet{state: lifecycle.Running, logs: map[int]cluster.Log{0: {Live: live(1)}}}
	dial := 0
	f.serve = func(d agentapi.Dial, w io.Writer) error {
		f.mu.Lock()
		dial++
		n := dial
		f.mu.Unlock()
		if !d.Follow {
			t.Error("not followed")
		}
		switch n {
		case 1: // breaks off amid lines of one time
			_, err := io.WriteString(w, frames(first[:1]...))
			return err
		case 2:
			_, err := io.WriteString(w, frames(first...))
			f.change(func() { f.logs[0] = cluster.Log{Runs: []cluster.RunLog{run(1, first...)}, Live: live(2)} })
			return err
		case 3:
			return away()
		}
		_, err := io.WriteString(w, frames(second...))
		f.change(func() {
			f.state = lifecycle.Released
			f.logs[0] = cluster.Log{Runs: []cluster.RunLog{run(1, first...), run(2, append(second, line{6, "stored later"})...)}}
		})
		return err
	}
	got := followed(patiently(t), t, f, nodelog.Query{Ranks: []int{0}, Tail: -1}, nil)
	same(t, got, "a", "b", "c", "d", "e", "stored later")
}

// TestFollowBeginsWithTheTail of what is kept and what the present run has printed, and goes on from there.
func TestFollowBeginsWithTheTail(t *testing.T) {
	t.Parallel()
	old := []line{{100, "a"}, {200, "b"}, {300, "c"}}
	printed := []line{{10, "d"}, {20, "e"}, {20, "f"}}
	all := append(printed, line{20, "g"}, line{30, "h"})
	for tail, want := range map[int][]string{
		9: {"a", "b", "c", "d", "e", "f", "g", "h"}, 4: {"c", "d", "e", "f", "g", "h"}, 1: {"f", "g", "h"}, 0: {"g", "h"},
	} {
		f := &fleet{
			state: lifecycle.Running,
			logs:  map[int]cluster.Log{0: {Runs: []cluster.RunLog{run(1, old...)}, Live: live(2)}},
		}
		f.serve = func(d agentapi.Dial, w io.Writer) error {
			if d.Tail < tail {
				t.Errorf("asked for %d lines", d.Tail)
			}
			if !d.Follow {
				_, err := io.WriteString(w, frames(printed...))
				return err
			}
			_, err := io.WriteString(w, frames(all...))
			f.change(func() {
				f.state = lifecycle.Released
				f.logs[0] = cluster.Log{Runs: []cluster.RunLog{run(1, old...), run(2, all...)}}
			})
			return err
		}
		same(t, followed(patiently(t), t, f, nodelog.Query{Ranks: []int{0}, Tail: tail}, nil), want...)
	}
}

// TestATailThatIsOvertaken: so much is printed between the tail and the stream that the stream begins beyond it.
func TestATailThatIsOvertaken(t *testing.T) {
	t.Parallel()
	all := []line{{10, "a"}, {20, "b"}, {30, "c"}, {40, "d"}}
	f := &fleet{state: lifecycle.Running, logs: map[int]cluster.Log{0: {Live: live(1)}}}
	f.serve = func(d agentapi.Dial, w io.Writer) error {
		part := all
		switch {
		case !d.Follow:
			part = all[:2]
		case d.Tail > 0:
			part = all[3:]
		default:
			f.change(func() { f.state = lifecycle.Released })
		}
		_, err := io.WriteString(w, frames(part...))
		return err
	}
	same(t, followed(patiently(t), t, f, nodelog.Query{Ranks: []int{0}, Tail: 1}, nil), "b", "c", "d")
}

func TestFollowEndsWithItsReader(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(patiently(t))
	f := &fleet{state: lifecycle.Running, logs: map[int]cluster.Log{0: {Live: live(1)}}}
	f.serve = func(_ agentapi.Dial, w io.Writer) error {
		_, err := io.WriteString(w, frames(line{1, "a"}))
		<-ctx.Done()
		return err
	}
	out := make(chan nodelog.Line)
	over := make(chan error, 1)
	go func() { over <- f.reader().Follow(ctx, nodelog.Query{Ranks: []int{0}, Tail: -1}, nil, out) }()
	if l := <-out; l.Line != "a" {
		t.Errorf("got %+v", l)
	}
	cancel()
	if err := <-over; err != nil {
		t.Error(err)
	}
}

// TestFollowLeavesADeadHost: its stream says nothing and never ends, while the rank runs elsewhere.
func TestFollowLeavesADeadHost(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		second := live(2)
		second.Host = id.New[id.Host]()
		f := &fleet{state: lifecycle.Running, logs: map[int]cluster.Log{0: {Live: live(1)}}}
		f.serve = func(d agentapi.Dial, w io.Writer) error {
			if d.Epoch == 1 {
				_, err := io.WriteString(w, frames(line{1000, "a"}))
				f.change(func() { f.host, f.logs[0] = second.Host, cluster.Log{Live: second} })
				<-t.Context().Done()
				return err
			}
			_, err := io.WriteString(w, frames(line{1, "b"}))
			f.change(func() { f.state = lifecycle.Released })
			return err
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		same(t, followed(ctx, t, f, nodelog.Query{Ranks: []int{0}, Tail: -1}, nil), "a", "b")
	})
}

// TestFollowGivesUpAnEndedClustersLostLog: a host that went away with the last lines keeps no reader.
func TestFollowGivesUpAnEndedClustersLostLog(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := &fleet{
			state: lifecycle.Failed,
			logs:  map[int]cluster.Log{0: {Runs: []cluster.RunLog{run(1, line{1, "a"})}, Live: live(2)}},
		}
		f.serve = func(agentapi.Dial, io.Writer) error { return away() }
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		same(t, followed(ctx, t, f, nodelog.Query{Ranks: []int{0}, Tail: -1}, nil), "a")
	})
}
