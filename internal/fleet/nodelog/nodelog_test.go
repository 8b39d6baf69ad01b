package nodelog_test

import (
	"context"
	"encoding/json"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/fleet/cluster"
	"github.com/musterhq/muster/internal/fleet/cluster/lifecycle"
	"github.com/musterhq/muster/internal/fleet/nodelog"
	"github.com/musterhq/muster/internal/id"
)

// line is one line as a test writes it.
type line struct {
	ms   int64
	text string
}

func frames(lines ...line) string {
	var b strings.Builder
	for _, l := range lines {
		raw, _ := json.Marshal(agentapi.LogFrame{TimeMS: l.ms, Line: l.text})
		b.Write(append(raw, '\n'))
	}
	return b.String()
}

// fleet is a cluster, the store of its logs and its hosts.
type fleet struct {
	mu    sync.Mutex
	state lifecycle.State
	host  id.Host // that has every rank
	logs  map[int]cluster.Log
	looks int
	// look is called with the number of the reading before each one of a log.
	look func(n int)
	// serve answers a host's stream; an error is the answer to the dialling.
	serve func(d agentapi.Dial, w io.Writer) error
	dials []agentapi.Dial
}

func (f *fleet) Get(context.Context, id.Org, id.Cluster) (cluster.Cluster, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	c := cluster.Cluster{State: f.state}
	for rank := range f.logs {
		c.Nodes = append(c.Nodes, cluster.Node{Rank: rank, HostID: f.host, State: lifecycle.NodeReady})
	}
	return c, nil
}

func (f *fleet) Log(_ context.Context, _ id.Org, _ id.Cluster, rank int) (cluster.Log, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.looks++
	if f.look != nil {
		f.look(f.looks)
	}
	return f.logs[rank], nil
}

func (f *fleet) open(ctx context.Context, _ id.Host, d agentapi.Dial) (io.ReadCloser, error) {
	f.mu.Lock()
	f.dials = append(f.dials, d)
	f.mu.Unlock()
	r, w := io.Pipe()
	answer := make(chan error, 1)
	go func() {
		err := f.serve(d, &dialled{answer: answer, w: w})
		answer <- err
		_ = w.Close()
	}()
	if err := <-answer; err != nil {
		return nil, err
	}
	return r, ctx.Err()
}

// dialled lets the dialling succeed with the first write.
type dialled struct {
	answer chan error
	once   sync.Once
	w      io.Writer
}

func (d *dialled) Write(b []byte) (int, error) {
	d.once.Do(func() { d.answer <- nil })
	return d.w.Write(b)
}

func (f *fleet) change(by func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	by()
}

func (f *fleet) reader() *nodelog.Reader { return nodelog.New(f, f.open, nil) }

func live(epoch int) *cluster.LiveLog {
	return &cluster.LiveLog{Ref: agentapi.LeaseRef{Lease: "l", Epoch: epoch}}
}

func run(epoch int, lines ...line) cluster.RunLog {
	return cluster.RunLog{Epoch: epoch, Content: []byte(frames(lines...))}
}

func texts(lines []nodelog.Line) []string {
	out := []string{}
	for _, l := range lines {
		out = append(out, l.Line)
	}
	return out
}

func same(t *testing.T, got []nodelog.Line, want ...string) {
	t.Helper()
	if !slices.Equal(texts(got), want) {
		t.Errorf("got %q, want %q", texts(got), want)
	}
}

func away() error { return fault.New(fault.Unavailable, "away") }

func patiently(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func TestMergeKeepsARanksOrder(t *testing.T) {
	t.Parallel()
	at := func(rank, epoch int, ms int64, text string) nodelog.Line {
		return nodelog.Line{Rank: rank, Epoch: epoch, LogFrame: agentapi.LogFrame{TimeMS: ms, Line: text}}
	}
	lines := []nodelog.Line{
		at(0, 1, 100, "a"), at(0, 1, 300, "c"), at(0, 2, 50, "d"), at(0, 2, 400, "f"), // epoch 2 began on a clock behind
		at(1, 1, 300, "e"), at(1, 1, 500, "g"),
		at(2, 1, 200, "b"),
	}
	nodelog.Merge(lines)
	same(t, lines, "a", "b", "c", "d", "e", "f", "g")
}

func TestPresentIsKeptThenLive(t *testing.T) {
	t.Parallel()
	f := &fleet{state: lifecycle.Running, logs: map[int]cluster.Log{
		0: {Runs: []cluster.RunLog{run(1, line{900, "one"}, line{950, "two"})}, Live: live(2)},
		1: {Runs: []cluster.RunLog{run(2, line{940, "other"})}},
	}}
	f.serve = func(_ agentapi.Dial, w io.Writer) error {
		_, err := io.WriteString(w, "no frame\n"+frames(line{10, "three"}, line{2000, "four"}))
		return err
	}
	got, _, err := f.reader().Present(t.Context(), nodelog.Query{Ranks: []int{0, 1}, Tail: -1})
	if err != nil {
		t.Fatal(err)
	}
	same(t, got, "one", "other", "two", "three", "four")
	got, _, err = f.reader().Present(t.Context(), nodelog.Query{Ranks: []int{0, 1}, Tail: 1})
	if err != nil {
		t.Fatal(err)
	}
	same(t, got, "other", "four")
}

// TestALogIsReadWhileItsContainerGoes: at that moment the log is on its way from the container to the host's disk to
// the store.
func TestALogIsReadWhileItsContainerGoes(t *testing.T) {
	t.Parallel()
	q := nodelog.Query{Ranks: []int{0}, Tail: -1}
	t.Run("stored meanwhile", func(t *testing.T) {
		t.Parallel()
		f := &fleet{state: lifecycle.Released, logs: map[int]cluster.Log{0: {Live: live(1)}}}
		f.look = func(n int) {
			if n == 2 {
				f.logs[0] = cluster.Log{Runs: []cluster.RunLog{run(1, line{1, "all"}, line{2, "of it"})}}
			}
		}
		f.serve = func(_ agentapi.Dial, w io.Writer) error { return away() }
		got, _, err := f.reader().Present(t.Context(), q)
		if err != nil || len(f.dials) != 1 {
			t.Fatal(err, f.dials)
		}
		same(t, got, "all", "of it")
	})
	t.Run("on the host's disk", func(t *testing.T) {
		t.Parallel()
		f := &fleet{state: lifecycle.Releasing, logs: map[int]cluster.Log{0: {Live: live(1)}}}
		f.serve = func(d agentapi.Dial, w io.Writer) error {
			if d.Purpose != agentapi.PurposeKeptLog {
				return away()
			}
			_, err := io.WriteString(w, frames(line{1, "kept"}))
			return err
		}
		got, _, err := f.reader().Present(t.Context(), q)
		if err != nil {
			t.Fatal(err)
		}
		same(t, got, "kept")
	})
	t.Run("nowhere", func(t *testing.T) {
		t.Parallel()
		f := &fleet{state: lifecycle.Running, logs: map[int]cluster.Log{0: {Live: live(1)}}}
		f.serve = func(agentapi.Dial, io.Writer) error { return away() }
		if _, _, err := f.reader().Present(t.Context(), q); !fault.Is(err, fault.Unavailable) || len(f.dials) != 2 {
			t.Errorf("%v after %d dials", err, len(f.dials))
		}
	})
}
