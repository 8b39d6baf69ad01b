package cluster_test

import (
	"strings"
	"testing"

	"github.com/musterhq/muster/internal/fleet/cluster/lifecycle"
)

// When a host reports that its cloud will take the machine away, its renter sees it in the timeline and receives one
// notice, as the host's word; nothing else follows.
func TestTheRenterIsToldOfACloudsAnnouncement(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldConfig{hosts: 2, gpus: 1})
	c := w.runUp(spec(2, 1))
	h := w.hostOf(c, 1)
	for _, says := range []string{"AWS: spot instance: stop at 12:00", "AWS: spot instance: stop at 12:01", "", "AWS: x"} {
		h.mu.Lock()
		s := h.report()
		for i := range s.Leases {
			s.Leases[i].Leaving = says
		}
		err := h.send(w.ctx, 0, s)
		h.mu.Unlock()
		w.must(err)
	}
	kinds, text := w.events(c)
	if n := strings.Count(strings.Join(kinds, " "), "host_leaving"); n != 1 ||
		!strings.Contains(text, "Rank 1: its host's cloud announces an interruption") ||
		!strings.Contains(text, "Its host says: AWS: spot instance: stop at 12:00. ") {
		t.Errorf("told %d times\n%s", n, text)
	}
	var notices int
	if err := w.d.Pool.QueryRow(w.ctx, "SELECT count(*) FROM notice WHERE org_id = $1 AND "+
		"dedupe_key LIKE 'host_leaving:%'", w.renter.Org).Scan(&notices); err != nil || notices != 1 {
		t.Errorf("%d notices, %v", notices, err)
	}
	if c = w.get(c); c.State != lifecycle.Running {
		t.Errorf("%s: %s", c.State, c.Detail)
	}
}
