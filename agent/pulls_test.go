package agent

import (
	"os"
	"testing"

	"github.com/musterhq/muster/internal/agentapi"
)

// What was pulled is one sum over restarts of the agent, told until a report of it was taken. A damaged sum is another
// counter.
func TestPullsAreSummedAndTold(t *testing.T) {
	t.Parallel()
	a, _, _ := crashing(t)
	if s, _ := a.sync(); s.Pulled != nil {
		t.Errorf("who counts nothing tells %+v", s.Pulled)
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
	told := func(taken bool) *agentapi.Pulled {
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
	first := told(true)
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
	want("not taken", told(false), 100)
	received = 150
	want("taken", told(true), 150)
	if got := told(true); got != nil {
		t.Errorf("told again: %+v", got)
	}
	again()
	want("by the next process", told(true), 150)
	received = 7
	want("more of the next process", told(true), 157)
	must(t, a.journal.Close(), os.WriteFile(a.disk.pullsFile(), []byte("{"), 0o600))
	received = 0
	var err error
	if a, err = New(cfg); err != nil {
		t.Fatal(err)
	}
	received = 5
	if got := told(true); got == nil || got.Bytes != 5 || got.Counter == "" || got.Counter == first.Counter {
		t.Errorf("after damage: %+v", got)
	}
}

// Of what may be fetched ahead of leases what came since is taken off, also what no report has told yet.
func TestTheLineBoundsWhatIsFetchedAhead(t *testing.T) {
	t.Parallel()
	a, _, _ := crashing(t)
	must(t, a.journal.Close())
	received, cfg := int64(0), a.cfg
	cfg.Received, cfg.StateDir = func() int64 { return received }, t.TempDir()
	a, err := New(cfg)
	must(t, err)
	t.Cleanup(func() { a.journal.Close() })
	tell := func(reply agentapi.SyncReply, taken bool) {
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
		if l, b := a.lineRoom(); l != left || b != bounded {
			t.Errorf("%s: %d %v, want %d %v", what, l, b, left, bounded)
		}
	}
	want("before a word", 0, false)
	tell(agentapi.SyncReply{}, true)
	want("without a cap", 0, false)
	tell(agentapi.SyncReply{PopularBytes: 1000}, true)
	want("with a cap", 990, true)
	received += 500
	want("after an image", 490, true)
	tell(agentapi.SyncReply{PopularBytes: 800}, false) // its server has not taken what came since
	want("the report was not taken", 280, true)
	tell(agentapi.SyncReply{PopularBytes: 300}, true)
	want("it was", 290, true)
	received += 400
	want("more than was left", -110, true)
	if a.prefetch(t.Context(), "index.docker.io/library/a:1") { // there is nothing to fetch with: it is not tried
		t.Error("an image that the line has no room for is done with")
	}
}
