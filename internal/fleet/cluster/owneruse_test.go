package cluster_test

import (
	"strings"
	"testing"

	"github.com/musterhq/muster/internal/fleet/cluster/lifecycle"
)

// If a host reports that its owner uses a rank's GPU, the renter gets one notice, which calls it the host's statement.
// Nothing else follows.
func TestTheRenterIsToldOfAnOwnersProgram(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldConfig{hosts: 2, gpus: 1})
	c := w.runUp(spec(2, 1))
	h := w.hostOf(c, 1)
	for _, mb := range []int64{4000, 6000, 0, 8000} {
		h.mu.Lock()
		s := h.report()
		for i := range s.Leases {
			s.Leases[i].OwnerMB = mb
		}
		err := h.send(w.ctx, 0, s)
		h.mu.Unlock()
		w.must(err)
	}
	kinds, text := w.events(c)
	if n := strings.Count(strings.Join(kinds, " "), "owner_uses_gpu"); n != 1 ||
		!strings.Contains(text, "Rank 1: programs of its host's owner use its GPU too") ||
		!strings.Contains(text, "Its host says that they took 4000 MiB") {
		t.Errorf("told %d times\n%s", n, text)
	}
	if c = w.get(c); c.State != lifecycle.Running {
		t.Errorf("%s: %s", c.State, c.Detail)
	}
}
