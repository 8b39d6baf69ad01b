package hostlink

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/fleet/host"
	"github.com/musterhq/muster/internal/id"
)

// nodeStore is a store of telemetry that counts what is asked of it.
type nodeStore struct {
	gpuLookup
	leases map[string]id.Lease
	reads  int
	stored map[id.Lease][]host.NodeSample
}

func (s *nodeStore) Leases(context.Context, id.Host) (map[string]id.Lease, error) {
	s.reads++
	return s.leases, nil
}

func (s *nodeStore) AppendNodeTelemetry(_ context.Context, series []host.NodeSeries) error {
	for _, x := range series {
		s.stored[x.Lease] = append(s.stored[x.Lease], x.Samples...)
	}
	return nil
}

// Samples of a host's own leases are stored, one a step; those of another host's lease are not, and naming such a lease
// does not make us read all the time.
func TestANodesSamplesAreItsHostsOwn(t *testing.T) {
	t.Parallel()
	h, mine, foreign := id.New[id.Host](), id.New[id.Lease](), id.New[id.Lease]()
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	s := &nodeStore{leases: map[string]id.Lease{}, stored: map[id.Lease][]host.NodeSample{}}
	r := newRecorder(s, func() time.Time { return now }, slog.New(slog.DiscardHandler))
	bytes := int64(7)
	send := func() {
		t.Helper()
		var nodes []agentapi.NodeSample
		for _, l := range []id.Lease{mine, foreign} {
			nodes = append(nodes, agentapi.NodeSample{LeaseRef: agentapi.LeaseRef{Lease: l.String(), Epoch: 1},
				AtMS: now.UnixMilli(), NetRx: &bytes})
		}
		if err := r.takeNodes(t.Context(), h, nodes); err != nil {
			t.Fatal(err)
		}
	}
	send() // the lease is not committed yet
	s.leases[mine.String()] = mine
	for range 29 {
		now = now.Add(time.Second)
		send()
	}
	r.flush(t.Context())
	if got := s.stored[mine]; len(got) != 3 || got[0].NetRx != 7 || got[0].NetTx != -1 {
		t.Errorf("stored %+v, want one sample in each 10 s of 30 s", got)
	}
	if len(s.stored[foreign]) != 0 {
		t.Error("a host's word about another host's lease is stored")
	}
	if s.reads > 4 {
		t.Errorf("the leases were read %d times in 30 s", s.reads)
	}
	now = now.Add(-maxAge - time.Minute) // its clock is behind
	send()
	r.flush(t.Context())
	if got := s.stored[mine]; len(got) != 3 {
		t.Errorf("an old sample is stored: %+v", got[3:])
	}
}
