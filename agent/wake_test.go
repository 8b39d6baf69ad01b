package agent

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/id"
)

// newWoken returns an agent that has accepted revision 5 of epoch 1, which was empty, and has no connection.
func newWoken(t *testing.T) *Agent {
	t.Helper()
	a, err := New(Config{
		StateDir: t.TempDir(),
		BootID:   "b1",
		BootMS:   func() int64 { return 1 },
		Now:      time.Now,
		GPUs:     GPUs{Diagnosis: quietGPUs{}},
		Log:      slog.New(slog.DiscardHandler),
	})
	must(t, err)
	t.Cleanup(func() { must(t, a.journal.Close()) })
	must(t, a.take(agentapi.Sync{}, nil, agentapi.SyncReply{ControlEpoch: 1, Desired: desiredAt(1, 5)}))
	<-a.syncNow // the reply was news
	return a
}

// desiredAt returns a state with a run for each of the references.
func desiredAt(epoch, revision int64, refs ...agentapi.LeaseRef) *agentapi.Desired {
	d := &agentapi.Desired{ControlEpoch: epoch, Revision: revision}
	for _, ref := range refs {
		d.Leases = append(d.Leases, agentapi.LeaseSpec{LeaseRef: ref})
	}
	return d
}

func wakeOf(d *agentapi.Desired) agentapi.Wake {
	return agentapi.Wake{Revision: d.Revision, Desired: d}
}

func poked(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// An agent without a connection, which could not make a request, has the command of a wake, and a report with it is
// due.
func TestWake_AppliesItsStateWithoutASync(t *testing.T) {
	t.Parallel()
	a, ref := newWoken(t), agentapi.LeaseRef{Lease: id.New[id.Lease]().String(), Epoch: 1}
	ctx, cancel := context.WithCancel(t.Context())
	var loop sync.WaitGroup
	loop.Go(func() { a.desired.run(ctx) })
	a.Wake(wakeOf(desiredAt(1, 6, ref)))
	<-a.syncNow
	cancel()
	loop.Wait()
	if r := a.runs.find(ref); r == nil || r.want == nil {
		t.Fatal("the run is not wanted")
	}
	if s, _ := a.sync(); s.Revision != 6 || len(s.Leases) != 1 || s.Leases[0].LeaseRef != ref {
		t.Errorf("the report that is due: revision %d, %+v", s.Revision, s.Leases)
	}
}

func TestWake_OfTheStateThatIsKnownDoesNothing(t *testing.T) {
	t.Parallel()
	a := newWoken(t)
	a.Wake(wakeOf(desiredAt(1, 5, agentapi.LeaseRef{Lease: id.New[id.Lease]().String(), Epoch: 1})))
	if poked(a.desired.woken) || poked(a.syncNow) {
		t.Error("it is applied, or asked for again")
	}
}

// A new epoch has rules of its own, which only the reply to a report follows: usage is sent again.
func TestWake_OfAnotherEpochAsksForTheState(t *testing.T) {
	t.Parallel()
	a := newWoken(t)
	a.Wake(wakeOf(desiredAt(2, 6)))
	if poked(a.desired.woken) || !poked(a.syncNow) {
		t.Error("it is applied, or not asked for")
	}
}

func TestWake_WithoutAStateAsksForIt(t *testing.T) {
	t.Parallel()
	a := newWoken(t)
	a.Wake(agentapi.Wake{Revision: 6})
	if poked(a.desired.woken) || !poked(a.syncNow) {
		t.Error("no report is due")
	}
}

// A wake overtakes the reply to a report that was on its way. The reply's state is older and changes nothing.
func TestWake_OvertakesAReply(t *testing.T) {
	t.Parallel()
	a, ref := newWoken(t), agentapi.LeaseRef{Lease: id.New[id.Lease]().String(), Epoch: 1}
	s, gone := a.sync()
	must(t, a.desired.follow(*desiredAt(1, 7, ref)))
	must(t, a.take(s, gone, agentapi.SyncReply{ControlEpoch: 1, Revision: 6, Desired: desiredAt(1, 6)}))
	if r := a.runs.find(ref); a.desired.revision() != 7 || r == nil || r.dismissed {
		t.Errorf("revision %d, run %+v", a.desired.revision(), r)
	}
}

// Two wakes in the wrong order: the newer state counts.
func TestWake_InTheWrongOrder(t *testing.T) {
	t.Parallel()
	a := newWoken(t)
	a.Wake(wakeOf(desiredAt(1, 7)))
	a.Wake(wakeOf(desiredAt(1, 6)))
	if a.desired.pushed == nil || a.desired.pushed.Revision != 7 {
		t.Errorf("%+v", a.desired.pushed)
	}
}
