package cluster_test

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/billing/ledger"
	"github.com/musterhq/muster/internal/fleet/cluster/lifecycle"
	"github.com/musterhq/muster/internal/money"
)

// Hosts fail in every way and come back in any order, while replicas look at once: at no moment has a rank two live
// leases or a GPU two users, no lease is billed beyond the windows, and in the end the ledger balances to the last
// digit.
func TestARandomRunOfLossesIsReplacedInOrder(t *testing.T) {
	t.Parallel()
	for seed := range uint64(2) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			lossWalk(t, rand.New(rand.NewPCG(62, seed)))
		})
	}
}

func lossWalk(t *testing.T, r *rand.Rand) {
	w := newWorld(t, worldConfig{hosts: 7, gpus: 1, replicas: 3})
	c := w.runUp(replacing(3, 1))
	silent := map[*fakeHost]bool{}
	var doing []string
	did := func(format string, args ...any) { doing = append(doing, fmt.Sprintf(format, args...)) }
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(doing)
		}
	})
	replaced, losses := 0, money.Nano(0) // losses: of what a host has not reported yet
	for range 90 {
		if c = w.get(c); c.State.Ended() {
			break
		}
		rank := r.IntN(len(c.Nodes))
		h := w.hostOf(c, rank)
		switch r.IntN(14) {
		case 0:
			if len(silent) < 3 {
				did("%d is silent", rank)
				losses++
				silent[h] = true
				w.quiet(c, rank, time.Minute)
			}
		case 1:
			did("silence is final")
			w.exec("UPDATE node SET since = since - interval '10 minutes' WHERE cluster_id = $1 AND state = 'lost'", c.ID)
		case 2:
			if !silent[h] {
				did("the GPU of %d fails", rank)
				w.fail(h, agentapi.ReasonGPUFailed)
			}
		case 3:
			if !silent[h] {
				did("the host of %d is restarted", rank)
				losses++
				h.reboot()
			}
		case 4:
			for h := range silent {
				did("%s is back", h.id)
				delete(silent, h)
				break
			}
		case 5:
			w.exec("UPDATE cluster SET due_at = clock_timestamp(), full_look_at = 'epoch' WHERE id = $1 AND due_at IS NOT NULL",
				c.ID)
			var looks sync.WaitGroup
			for _, k := range w.clusters {
				looks.Go(func() {
					if res, err := k.Watchdog.Pass(w.ctx); err != nil || res.Failed > 0 {
						t.Errorf("watchdog: %+v %v", res, err)
					}
				})
			}
			looks.Wait()
		default:
			for i, h := range w.hosts {
				if !silent[h] {
					w.must(h.sync(w.ctx, i))
					h.neverTwice(t)
				}
			}
		}
		w.one(c)
		if now := w.get(c); now.Epoch > c.Epoch {
			replaced++
		}
	}
	t.Logf("%d replacements, %s", replaced, c.State)
	c = w.get(c)
	if !c.State.Ended() {
		w.must(errOf(w.clusters[0].Rentals.Release(w.ctx, w.renter, c.ID)))
	}
	for range 8 {
		for i, h := range w.hosts {
			w.must(h.sync(w.ctx, i))
		}
		w.tick(c)
	}
	w.noClaims()
	w.ledger()
	w.withinWindows(c)
	// What a restarted host took with it of its last moment is held until its journal may no longer arrive.
	held, err := ledger.Balance(w.ctx, w.d.Q, ledger.Hold(w.renter.Org, c.ID, usd))
	w.must(err)
	wallet := w.wallet()
	earned, err := ledger.Balance(w.ctx, w.d.Q, ledger.HostPending(w.operator.Org, usd))
	w.must(err)
	fee, err := ledger.Balance(w.ctx, w.d.Q, ledger.Fee(usd))
	w.must(err)
	lastMoments := losses * 5 * 3 * price.Nano() / 3600 // at most 5 s of 3 GPUs each, on a busy machine
	if wallet+held+earned+fee != 1000e9 || held > lastMoments {
		t.Errorf("wallet %s + held %s + earned %s + fee %s is not what was paid in", wallet, held, earned, fee)
	}
	if got := w.get(c); got.State != lifecycle.Released && got.State != lifecycle.Failed {
		t.Errorf("ended as %s", got.State)
	}
}

// fail ends what runs on a host for a reason of the host's.
func (w *world) fail(h *fakeHost, reason string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, r := range h.runs {
		if r.State != agentapi.NodeStopped && r.State != agentapi.NodeStopping && r.State != agentapi.NodeFailed {
			h.fail(r, reason)
		}
	}
}
