package cluster_test

import (
	"strings"
	"testing"

	"github.com/musterhq/muster/internal/fleet/cluster/lifecycle"
)

// When the data cap of a host is used up, its renters get one notice a month that says what it means for them. Nothing
// else follows.
func TestTheRenterIsToldOfAUsedUpDataCap(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldConfig{hosts: 2, gpus: 1})
	c := w.runUp(spec(2, 1))
	h := w.hostOf(c, 1)
	told := func(until string) (int, string) {
		t.Helper()
		if _, err := w.d.Pool.Exec(w.ctx, "UPDATE host SET capped_until = "+until+" WHERE id = $1", h.id); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			h.mu.Lock()
			err := h.send(w.ctx, 0, h.report())
			h.mu.Unlock()
			w.must(err)
		}
		kinds, text := w.events(c)
		return strings.Count(strings.Join(kinds, " "), "host_data_cap"), text
	}
	const next = "date_trunc('month', clock_timestamp() AT TIME ZONE 'UTC') AT TIME ZONE 'UTC' + interval "
	if n, _ := told(next + "'0'"); n != 0 {
		t.Errorf("told %d times of a cap of the month before", n)
	}
	if n, text := told(next + "'40 days'"); n != 1 ||
		!strings.Contains(text, "Rank 1: its host has used up its line's data cap for ") ||
		!strings.Contains(text, "charged as before") {
		t.Errorf("told %d times\n%s", n, text)
	}
	if n, _ := told("NULL"); n != 1 {
		t.Errorf("told %d times, the last when the cap was raised", n)
	}
	if n, _ := told(next + "'40 days'"); n != 1 {
		t.Errorf("told %d times in one month", n)
	}
	if n, _ := told(next + "'70 days'"); n != 2 {
		t.Errorf("told %d times in two months", n)
	}
	if c = w.get(c); c.State != lifecycle.Running {
		t.Errorf("%s: %s", c.State, c.Detail)
	}
}
