package cluster_test

import (
	"strings"
	"testing"
	"time"

	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/billing/metering"
	"github.com/musterhq/muster/internal/fleet/cluster"
	"github.com/musterhq/muster/internal/fleet/cluster/lifecycle"
	"github.com/musterhq/muster/internal/money"
	"github.com/musterhq/muster/internal/notify"
)

// A GPU fails while the cluster is billed: the cluster ends, and what the failed node cost is back in the wallet
// without anybody asking. The other node's host keeps what it earned.
func TestAHostsFaultIsCredited(t *testing.T) {
	t.Parallel()
	for name, onFailure := range map[string]string{"ends": "fail", "goes on": "ignore"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, worldConfig{hosts: 2, gpus: 1})
			s := spec(2, 1)
			s.OnNodeFailure = onFailure
			c := w.runUp(s)
			w.ran(c, time.Minute)
			w.rounds(c, "billed", func(cluster.Cluster) bool { w.tick(c); return w.costOf(c, 1) > 0 })
			w.behave(1, func(h *fakeHost, r *run) {
				if r.Started && r.State == agentapi.NodeReady {
					h.fail(r, agentapi.ReasonGPUFailed)
				}
			})
			if onFailure == "fail" {
				c = w.rounds(c, "failed", in(lifecycle.Failed))
				if !strings.Contains(c.Detail, "credited to you") {
					t.Errorf("told %q", c.Detail)
				}
			} else {
				c = w.rounds(c, "degraded and billed again", func(c cluster.Cluster) bool {
					return c.State == lifecycle.Degraded &&
						c.Billing
				})
				_, err := w.clusters[0].Rentals.Release(w.ctx, w.renter, c.ID)
				w.must(err)
			}
			c = w.clean(c)
			credits, err := metering.Credits(w.ctx, w.d.Q, c.ID)
			w.must(err)
			if len(credits) != 1 || credits[0].Rank != 1 || credits[0].Reason != "gpu_failed" {
				t.Fatalf("credited %+v", credits)
			}
			u := w.usage(c)
			var lost money.Nano
			for _, l := range u.Lines {
				if l.Rank == 1 {
					lost += l.Cost
				}
			}
			if lost == 0 || credits[0].Amount != lost || w.wallet() != 1000*money.Unit-u.Cost+lost {
				t.Errorf("the failed node cost %s of %s, %s is credited, the wallet has %s", lost, u.Cost, credits[0].Amount,
					w.wallet())
			}
			told, err := notify.List(w.ctx, w.d.Q, w.operator.Org, notify.Filter{Limit: 10})
			w.must(err)
			if len(told) == 0 || !strings.Contains(told[0].Body, "gpu_failed") {
				t.Errorf("the operator was told %+v", told)
			}
		})
	}
}

// costOf is what a rank's proven time costs so far, booked or waiting to be.
func (w *world) costOf(c cluster.Cluster, rank int) (cost money.Nano) {
	for _, l := range w.usage(c).Lines {
		if l.Rank == rank {
			cost += l.Cost
		}
	}
	return cost
}

func (w *world) usage(c cluster.Cluster) metering.Usage {
	w.t.Helper()
	u, err := metering.ClusterUsage(w.ctx, w.d.Q, c.ID)
	w.must(err)
	return u
}
