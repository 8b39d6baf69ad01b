package agent

import (
	"os"
	"testing"

	"github.com/musterhq/muster/internal/agentapi"
)

// The bytes pulled are one sum over restarts of the agent, reported until the server takes a report of it. A damaged
// sum starts a new counter.
func TestPullsAreSummedAndTold(t *testing.T) {
	t.Parallel()
	a, _, _ := crashing(t)
	if s, _ := a.sync(); s.Pulled != nil {
		t.Errorf("an agent without a counter reports %+v", s.Pulled)
	}
	cfg, received := a.cfg, int64(0)
	cfg.Received = func() int64 { return received }
	again := func() {
		t.Helper()
		must(t, a.journal.Close())
		received = 0
		var err error
		if a, err = New(cfg); err != nil {
			t.Fatal(err)
		}
	}
	report := func(taken bool) *agentapi.Pulled {
		s, _ := a.sync()
		if taken {
			a.acknowledge(s, nil, agentapi.SyncReply{StatusAck: s.Seq})
		} else {
			a.acknowledge(s, nil, agentapi.SyncReply{})
		}
		return s.Pulled
	}
	t.Cleanup(func() { a.journal.Close() })
	again()
	first := report(true)
	if first == nil || first.Counter == "" || first.Bytes != 0 {
		t.Fatalf("at first %+v", first)
	}
	want := func(what string, got *agentapi.Pulled, bytes int64) {
		t.Helper()
		if got == nil || *got != (agentapi.Pulled{Counter: first.Counter, Bytes: bytes}) {
			t.Errorf("%s: %+v, want %d", what, got, bytes)
		}
	}
	received = 100
	want("not taken", report(false), 100)
	received = 150
	want("taken", report(true), 150)
	if got := report(true); got != nil {
		t.Errorf("reported again: %+v", got)
	}
	again()
	want("by the next process", report(true), 150)
	received = 7
	want("more of the next process", report(true), 157)
	must(t, a.journal.Close(), os.WriteFile(a.disk.pullsFile(), []byte("{"), 0o600))
	received = 0
	var err error
	if a, err = New(cfg); err != nil {
		t.Fatal(err)
	}
	received = 5
	if got := report(true); got == nil || got.Bytes != 5 || got.Counter == "" || got.Counter == first.Counter {
		t.Errorf("after damage: %+v", got)
	}
}

// Bytes that have arrived since the server set the limit for prefetching are subtracted from it, even those not
// reported yet.
func TestTheLineBoundsWhatIsFetchedAhead(t *testing.T) {
	t.Parallel()
	a, _, _ := crashing(t)
	must(t, a.journal.Close())
	received, cfg := int64(0), a.cfg
	cfg.Received, cfg.StateDir = func() int64 { return received }, t.TempDir()
	a, err := New(cfg)
	must(t, err)
	t.Cleanup(func() { a.journal.Close() })
	answer := func(reply agentapi.SyncReply, taken bool) {
		t.Helper()
		s, gone := a.sync()
		if reply.Popular = []string{"index.docker.io/library/a:1"}; taken {
			reply.StatusAck = s.Seq
		}
		received += 10 // while the report was under way
		must(t, a.take(s, gone, reply))
	}
	want := func(what string, left int64, bounded bool) {
		t.Helper()
		if l, b := a.images.lineRoom(); l != left || b != bounded {
			t.Errorf("%s: %d %v, want %d %v", what, l, b, left, bounded)
		}
	}
	want("before the first reply", 0, false)
	answer(agentapi.SyncReply{}, true)
	want("without a cap", 0, false)
	answer(agentapi.SyncReply{PopularBytes: 1000}, true)
	want("with a cap", 990, true)
	received += 500
	want("after an image", 490, true)
	answer(agentapi.SyncReply{PopularBytes: 800}, false) // its server has not taken what came since
	want("the report was not taken", 280, true)
	answer(agentapi.SyncReply{PopularBytes: 300}, true)
	want("it was", 290, true)
	received += 400
	want("more than was left", -110, true)
	if a.images.prefetch(t.Context(), "index.docker.io/library/a:1") { // there is nothing to fetch with: it is not tried
		t.Error("an image that the line has no room for is done with")
	}
}
