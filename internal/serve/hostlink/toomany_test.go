package hostlink_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/testing/dbtest"
	"github.com/musterhq/muster/internal/testing/fleettest"
)

// still is a clock that a test moves.
type still struct{ ms atomic.Int64 }

func (c *still) now() time.Time { return time.UnixMilli(c.ms.Load()) }

func newStillSite(t *testing.T) (*site, *still) {
	t.Helper()
	clock := &still{}
	clock.ms.Store(time.Now().UnixMilli())
	s := &site{t: t, d: dbtest.New(t)}
	s.org, s.user = fleettest.Org(t, s.d)
	cfg := config()
	cfg.Now = clock.now
	s.link, s.w = start(t, s.d, cfg)
	return s, clock
}

func (w *fakeWorld) seen() []agentapi.Sync {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.observed)
}

func (w *fakeWorld) reports() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.observed)
}

func TestOneReportTooManyIsToldHowLongToWait(t *testing.T) {
	t.Parallel()
	s, clock := newStillSite(t)
	a, other := s.enroll(), s.enroll()
	const burst, waitMS = 50, 100
	leases := []agentapi.LeaseStatus{{ // without one, nothing of a report would be applied
		LeaseRef: agentapi.LeaseRef{Lease: id.New[id.Lease]().String(), Epoch: 1}, State: agentapi.NodePulling,
	}}
	for i := range burst {
		if r := a.sync(agentapi.Sync{
			Full: true, Leases: leases,
			Seq: uint64(i + 1),
		}); r.Error != "" || r.StatusAck != uint64(i+1) || r.RetryMS != 0 {
			t.Fatalf("report %d: %+v", i, r)
		}
	}
	for range 2 {
		r := a.sync(agentapi.Sync{Full: true, Seq: 99})
		if want := fmt.Sprintf("too many reports; wait %d ms", waitMS); r.Error != want || r.RetryMS != waitMS ||
			r.StatusAck != 0 || r.ControlEpoch != 0 || r.Desired != nil {
			t.Errorf("%+v, want %q", r, want)
		}
	}
	if n := s.w.reports(); n != burst {
		t.Errorf("%d reports were taken, want %d", n, burst)
	}
	if r := other.sync(agentapi.Sync{Full: true, Seq: 1}); r.Error != "" {
		t.Errorf("another host pays for it: %+v", r)
	}
	clock.ms.Add(waitMS - 1)
	if r := a.sync(agentapi.Sync{Full: true, Seq: 100}); r.RetryMS != 1 {
		t.Errorf("a millisecond too early: %+v", r)
	}
	clock.ms.Add(1)
	if r := a.sync(agentapi.Sync{Full: true, Seq: 101}); r.Error != "" || r.StatusAck != 101 {
		t.Errorf("after the wait: %+v", r)
	}
	if r := a.sync(agentapi.Sync{Full: true, Seq: 102}); r.RetryMS != waitMS {
		t.Errorf("whoever does not wait gains a report: %+v", r)
	}
}

func TestAnInventoryTooManyIsToldHowLongToWait(t *testing.T) {
	t.Parallel()
	s, clock := newStillSite(t)
	a := s.enroll()
	ask := func() (ack agentapi.Ack) {
		t.Helper()
		a.request(agentapi.SubjectInventory(a.Host.String()), fleettest.Inventory(2), &ack)
		return ack
	}
	for range 10 {
		if ack := ask(); ack.Error != "" {
			t.Fatal(ack)
		}
	}
	if ack := ask(); ack.RetryMS != 2000 || ack.Error == "" {
		t.Errorf("%+v", ack)
	}
	clock.ms.Add(2000)
	if ack := ask(); ack.Error != "" {
		t.Error(ack)
	}
}

func TestTelemetryTooManyIsCountedAndSaidOnce(t *testing.T) {
	t.Parallel()
	s, _ := newStillSite(t)
	a := s.enroll()
	const burst, more = 20, 7
	data, err := json.Marshal(agentapi.Telemetry{})
	if err != nil {
		t.Fatal(err)
	}
	for range burst + more {
		if err := a.nc.Publish(agentapi.SubjectTelemetry(a.Host.String()), data); err != nil {
			t.Fatal(err)
		}
	}
	var lost int64
	for range 40 { // as many as the limit of reports allows: some messages may still be on their way
		r := a.sync(agentapi.Sync{})
		if r.Error != "" {
			t.Fatalf("%+v", r)
		}
		if lost += r.TelemetryLost; lost >= more {
			break
		}
	}
	if r := a.sync(agentapi.Sync{}); lost != more || r.TelemetryLost != 0 {
		t.Errorf("%d messages lost, then %d; want %d, then none", lost, r.TelemetryLost, more)
	}
}
