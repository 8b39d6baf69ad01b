package cluster_test

import (
	"strings"
	"testing"
	"time"

	"github.com/musterhq/muster/internal/fleet/cluster"
	"github.com/musterhq/muster/internal/notify"
)

// line is the detail of the first line of a kind in a cluster's timeline that is about the whole; "" when there is
// none.
func (w *world) line(c cluster.Cluster, kind string) string {
	w.t.Helper()
	events, err := w.clusters[0].Views.Events(w.ctx, w.renter.Org, c.ID, 0, 200)
	w.must(err)
	for _, e := range events {
		if e.Kind == kind && e.Rank == nil {
			return e.Detail
		}
	}
	return ""
}

// The event of a fault that does not end the cluster is complete, too: it says what happened, what it means for the
// bill, and what to do.
func TestFaultsThatEndNothingAreToldWhole(t *testing.T) {
	t.Parallel()
	says := func(t *testing.T, what, text string, parts ...string) {
		t.Helper()
		for _, p := range parts {
			if !strings.Contains(text, p) {
				t.Errorf("%s does not say %q: %s", what, p, text)
			}
		}
	}
	for policy, then := range map[string]string{
		"fail":    "the cluster ends",
		"ignore":  "the others go on without it",
		"replace": "another host takes it",
	} {
		t.Run("a rank is silent, "+policy, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, worldConfig{hosts: 3, gpus: 1})
			s := spec(3, 1)
			s.OnNodeFailure = policy
			c := w.runUp(s)
			w.quiet(c, 2, time.Minute)
			w.tick(c)
			whole := []string{"could no longer be reached", "rank 2", "Nothing is charged from the last moment",
				"You need do nothing", then}
			says(t, "the timeline", w.line(c, "node_lost"), whole...)
			says(t, "the cluster", w.get(c).Detail, whole...)
			w.exec("UPDATE node SET since = since - interval '10 minutes' WHERE cluster_id = $1 AND state = 'lost'", c.ID)
			w.tick(c)
			const credited = "credited to you"
			switch policy {
			case "ignore":
				gone := []string{"could no longer be reached", "Seconds count for the remaining ranks alone", credited,
					"release the cluster and rent again"}
				says(t, "the timeline", w.line(c, "rank_ignored"), gone...)
				told, err := notify.List(w.ctx, w.d.Q, w.renter.Org, notify.Filter{Limit: 10})
				w.must(err)
				if len(told) == 0 || !strings.Contains(told[0].Title, "goes on without rank 2") {
					t.Errorf("the renter is told %+v", told)
				} else {
					says(t, "the notice", told[0].Body, gone...)
				}
			case "replace":
				says(t, "the timeline", w.line(c, "replacing"), "could no longer be reached", "proven up are charged", credited,
					"is looked for until")
			case "fail":
				says(t, "the cluster", w.get(c).Detail, "could no longer be reached", "proven up are charged", credited,
					"Rent again")
			}
		})
	}
	t.Run("the command fails and starts again", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t, worldConfig{hosts: 1, gpus: 1})
		s := spec(1, 1)
		s.Restart = "on_failure"
		c := w.runUp(s)
		w.behave(0, func(h *fakeHost, r *run) {
			if r.Epoch == 1 && r.ExitCode == nil {
				h.exit(r, 3)
			}
		})
		w.rounds(c, "starts again", func(c cluster.Cluster) bool { return w.line(c, "restart") != "" })
		says(t, "the timeline", w.line(c, "restart"), "rank 0 exit code 3", "What ran until then is charged", "Read the log")
	})
}

// What the ranks measure is stored with the offers, where searches find it, and is compared with what the offers
// promised. The renter gets a notice if it is far less.
func TestANetworkIsComparedWithItsOffers(t *testing.T) {
	t.Parallel()
	const kind = "network_below_offer"
	w := newWorld(t, worldConfig{hosts: 2, gpus: 4})
	first := w.runUp(spec(2, 1))
	if n := w.get(first).Network; n.OfferedGbps != 0 || n.BusbwGbps != 10 || w.line(first, kind) != "" {
		t.Errorf("nothing was offered: %+v, %q", n, w.line(first, kind))
	}
	var measured int
	w.must(w.d.Pool.QueryRow(w.ctx,
		"SELECT count(*) FROM host_status WHERE net_up_mbps = 10000 AND net_down_mbps = 10000").Scan(&measured))
	if measured != 2 {
		t.Errorf("the figures of %d hosts are what was measured", measured)
	}
	var fabric float64
	w.must(w.d.Pool.QueryRow(w.ctx, "SELECT busbw_gbps FROM fabric").Scan(&fabric))
	if fabric != 10 {
		t.Errorf("the fabric's figure is %v", fabric)
	}
	check := func(c cluster.Cluster, offered float64, told string) {
		t.Helper()
		if n := w.get(c).Network; n.OfferedGbps != offered {
			t.Errorf("offered: %+v, want %v", n, offered)
		}
		if line := w.line(c, kind); told == "" && line != "" || !strings.Contains(line, told) {
			t.Errorf("told %q, want %q", line, told)
		}
	}
	check(w.runUp(spec(2, 1)), 10, "")
	w.exec("UPDATE fabric SET busbw_gbps = 19") // they are of one
	check(w.runUp(spec(2, 1)), 19, "")          // less, but not far less
	w.exec("UPDATE fabric SET busbw_gbps = 32")
	c := w.runUp(spec(2, 1))
	check(c, 32, "reached 10.0 Gbit/s, the offers of these hosts say 32.0")
	for _, part := range []string{"Seconds count as usual", "network.min_gbps"} {
		if !strings.Contains(w.line(c, kind), part) {
			t.Errorf("it does not say %q: %s", part, w.line(c, kind))
		}
	}
}
