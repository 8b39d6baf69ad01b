package model

import (
	"context"
	"crypto/ed25519"
	"fmt"
	"math/big"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/billing/ledger"
	"github.com/musterhq/muster/internal/billing/metering"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/money"
)

const (
	eur = "EUR"
	day = int64(86_400_000) // ms
)

// machine is a host with a key and, per boot, some time anchors that do not quite agree.
type machine struct {
	id       id.Host
	operator id.Org
	key      ed25519.PrivateKey
	boots    [][]agentapi.Anchor
}

// rental is one cluster's random story.
type rental struct {
	renter  id.Org
	cluster id.Cluster
	leases  []*leaseStory
	windows [][2]int64
	steps   []step // what time does to the windows, in order
	life    [2]int64
	funds   money.Nano // paid in for it
	ended   bool
}

// step is one commit of time passing: a window that opens, if it is not open yet, and is confirmed up to a moment.
type step struct {
	open, until int64
	close, lost bool // it ends there: in order, or because a rank was lost and nothing later is confirmed
	settle      bool // instead, what is spare of the hold is given back while the cluster lives
}

// leaseStory is one lease of it: what a bill may depend on, and the segments that ever arrive.
type leaseStory struct {
	id     id.Lease
	host   *machine
	facts  facts
	sent   []agentapi.Segment
	late   []agentapi.Segment // come after the end, when the rest of the hold was given back
	energy int64              // mJ in sent
}

// newFleet makes hosts with keys, boots and anchors.
func newFleet(t *testing.T, d *db.DB, r *rand.Rand, n int) []*machine {
	t.Helper()
	now := clock(t, d)
	out := make([]*machine, n)
	for i := range out {
		m := &machine{id: id.New[id.Host](), operator: newOrg(t, d)}
		_, m.key, _ = ed25519.GenerateKey(nil)
		run(t, d, "INSERT INTO host (id, org_id, name, region, state) VALUES ($1, $2, $3, 'eu', 'active')", m.id, m.operator,
			m.id.String())
		run(t, d, "INSERT INTO host_key (host_id, link_key, attest_key) VALUES ($1, $2, $3)", m.id, m.id.String(),
			[]byte(m.key.Public().(ed25519.PublicKey)))
		for b := range 1 + r.IntN(3) {
			var anchors []agentapi.Anchor
			for k := range int64(1 + r.IntN(3)) { // clocks drift: anchors disagree by up to two seconds
				a := agentapi.Anchor{
					BootID:   fmt.Sprint("boot-", b),
					Number:   k + 1,
					BootMS:   1e11 + k*600_000,
					ServerMS: now - (3-k)*600_000 - r.Int64N(2000),
				}
				run(t, d, "INSERT INTO time_anchor (host_id, boot_id, number, boot_ms, server_ms) VALUES ($1, $2, $3, $4, $5)",
					m.id, a.BootID, a.Number, a.BootMS, a.ServerMS)
				anchors = append(anchors, a)
			}
			m.boots = append(m.boots, anchors)
		}
		out[i] = m
	}
	return out
}

// newRental writes a cluster of up to three leases that lived for up to span ms and ended a minute ago, with exactly
// the money held that its whole life can cost.
func newRental(t *testing.T, d *db.DB, r *rand.Rand, hosts []*machine, span int64) *rental {
	t.Helper()
	end := clock(t, d) - 60_000
	c := newLeases(t, d, r, hosts, [2]int64{end - span/2 - r.Int64N(span/2), end})
	run(t, d, `UPDATE lease SET created_at = to_timestamp($2::bigint / 1000.0), run_until = to_timestamp($3::bigint /
		1000.0), covered_from_ms = $2
		WHERE cluster_id = $1`, c.cluster, c.life[0], c.life[1])
	c.replace(t, d, r)
	c.fund(t, d)
	c.draw(r)
	return c
}

// newLeases writes the cluster, its leases and the prices they will have.
func newLeases(t *testing.T, d *db.DB, r *rand.Rand, hosts []*machine, life [2]int64) *rental {
	t.Helper()
	c := &rental{renter: newOrg(t, d), cluster: id.New[id.Cluster](), life: life}
	span := life[1] - life[0]
	var in []metering.NewLease
	for rank := range 1 + r.IntN(3) {
		l := &leaseStory{id: id.New[id.Lease](), host: hosts[r.IntN(len(hosts))]}
		rate := r.Int64N(40_000_000)
		if r.IntN(10) == 0 {
			rate = int64(r.IntN(2)) // free, or next to nothing
		}
		l.facts = facts{life: c.life, prices: [][2]int64{{0, rate}}, ppm: r.Int64N(1_000_001)}
		c.leases = append(c.leases, l)
		in = append(in, metering.NewLease{
			ID:           l.id,
			Cluster:      c.cluster,
			Node:         id.New[id.Node](),
			Rank:         rank,
			Host:         l.host.id,
			Renter:       c.renter,
			Operator:     l.host.operator,
			GPUModel:     "H100",
			GPUs:         []id.GPU{id.New[id.GPU]()},
			Currency:     eur,
			HostSharePPM: l.facts.ppm,
			Epoch:        1,
			Rate:         money.Micro(rate),
		})
	}
	inTx(t, d, func(ctx context.Context, tx *db.Tx) error { return create(ctx, tx, in) })
	for _, l := range c.leases {
		for range r.IntN(3) { // an agreed change of price
			p := [2]int64{l.facts.prices[len(l.facts.prices)-1][0] + 1 + r.Int64N(span), r.Int64N(40_000_000)}
			if p[0] < c.life[0] {
				p[0] += c.life[0]
			}
			l.facts.prices = append(l.facts.prices, p)
			run(t, d, "INSERT INTO lease_price (lease_id, from_ms, rate, items) VALUES ($1, $2, $3, '[]')", l.id, p[0], p[1])
		}
	}
	return c
}

// replace makes some nodes ones that joined later and were replaced before the end.
func (c *rental) replace(t *testing.T, d *db.DB, r *rand.Rand) {
	t.Helper()
	span := c.life[1] - c.life[0]
	for _, l := range c.leases {
		if r.IntN(3) == 0 {
			l.facts.life[0] += r.Int64N(span / 4)
			l.facts.life[1] -= r.Int64N(span / 4)
			run(t, d, "UPDATE lease SET created_at = to_timestamp($2::bigint / 1000.0), ended_at = to_timestamp($3::bigint / "+
				"1000.0) WHERE id = $1",
				l.id, l.facts.life[0], l.facts.life[1])
		}
	}
}

// fund holds what the leases cost if all of their life is billed, rounded up, and not a nano-unit more.
func (c *rental) fund(t *testing.T, d *db.DB) {
	t.Helper()
	need := new(big.Int)
	for _, l := range c.leases {
		need.Add(need, l.facts.within(c.life).judge().renter)
	}
	if need.Sign() == 0 {
		return
	}
	n := money.Nano(need.Int64())
	c.funds = n
	inTx(t, d, func(ctx context.Context, tx *db.Tx) error {
		_, err := ledger.PostAll(ctx, tx, []ledger.Entry{
			{
				Kind:      "topup",
				Key:       "topup:" + c.cluster.String(),
				Transfers: []ledger.Transfer{{Debit: ledger.StripeClearing(eur), Credit: ledger.Wallet(c.renter, eur), Amount: n}},
			},
			{
				Kind: "authorise",
				Key:  "authorise:" + c.cluster.String(),
				Transfers: []ledger.Transfer{{
					Debit:  ledger.Wallet(c.renter, eur),
					Credit: ledger.Hold(c.renter, c.cluster, eur),
					Amount: n,
				}},
			},
		})
		return err
	})
}

// draw makes up windows, one after the other, and what each host signs: boots that overlap or leave gaps, segments cut
// early, some lost for good.
func (c *rental) draw(r *rand.Rand) {
	span := c.life[1] - c.life[0]
	for at := c.life[0] + r.Int64N(60_000); at < c.life[1]; {
		end := min(c.life[1], at+r.Int64N(span)+r.Int64N(60_000))
		c.windows = append(c.windows, [2]int64{at, end})
		c.drawSteps(r, at, end)
		at = end + r.Int64N(600_000)*int64(r.IntN(2))
	}
	for _, l := range c.leases {
		l.facts.windows = c.windows
		at := l.facts.life[0] - r.Int64N(2_000)
		for b, anchors := range l.host.boots {
			until := c.life[1] + 30_000 // hosts stop a little late
			if b+1 < len(l.host.boots) {
				until = min(until, at+r.Int64N(span))
			}
			a := anchors[0]
			for seq := int64(1); at < min(until, c.life[1]+30_000); seq++ {
				length := int64(300_000)
				if r.IntN(6) == 0 {
					length = 1 + r.Int64N(305_000)
				}
				end := min(at+length, until)
				if next := anchors[r.IntN(len(anchors))]; r.IntN(20) == 0 && next.Number > a.Number && end-at <= 300_000 {
					end += next.ServerMS - next.BootMS - (a.ServerMS - a.BootMS) // the same tick by another anchor
					a = next
				}
				if end <= at {
					continue
				}
				s := agentapi.Segment{Lease: l.id.String(), Epoch: 1, BootID: a.BootID, Seq: seq, Anchor: a.Number,
					BootEndMS: end - a.ServerMS + a.BootMS, StartMS: at, EndMS: end, EnergyMJ: r.Int64N(1_000_000_000)}
				s.Sign(l.host.id.String(), l.host.key)
				switch r.IntN(60) {
				case 0: // lost for good
				case 1, 2:
					l.late = append(l.late, s)
				default:
					l.sent = append(l.sent, s)
					l.energy += s.EnergyMJ
				}
				at = end
			}
			at = max(at+r.Int64N(240_000)-120_000, l.facts.life[0]-2_000)
		}
	}
}

// drawSteps makes up how a window goes: confirmed now and again, closed in the end. A cluster whose nodes all live to
// its end may be looked at for spare money at any time; of others the tests know the ends before time has come to them.
func (c *rental) drawSteps(r *rand.Rand, open, end int64) {
	until := open
	for range 1 + r.IntN(3) {
		until += r.Int64N(end - until + 1)
		c.steps = append(c.steps, step{open: open, until: until})
		if !slices.ContainsFunc(c.leases, func(l *leaseStory) bool { return l.facts.life[1] != c.life[1] }) &&
			r.IntN(4) == 0 {
			c.steps = append(c.steps, step{settle: true})
		}
	}
	c.steps = append(c.steps, step{open: open, until: end, close: true, lost: r.IntN(3) == 0})
}

// pass does to the cluster what time does at its n-th step.
func (c *rental) pass(ctx context.Context, d *db.DB, n int) error {
	s := c.steps[n]
	return d.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		if s.settle {
			done, err := metering.Settle(ctx, tx, c.cluster)
			if err == nil && done {
				err = fmt.Errorf("cluster %s was settled while it lived", c.cluster)
			}
			return err
		}
		if err := metering.OpenWindow(ctx, tx, c.cluster, at(s.open)); err != nil {
			return err
		}
		if err := metering.AdvanceConfirmed(ctx, tx, c.cluster, at(s.until)); err != nil {
			return err
		}
		if s.close {
			end := at(s.until)
			if s.lost {
				end = time.Time{}
			}
			if _, err := metering.CloseWindow(ctx, tx, c.cluster, end); err != nil {
				return err
			}
		}
		return metering.Post(ctx, tx, c.cluster)
	})
}

// settle ends the cluster and gives back what can no longer be needed of its hold.
func (c *rental) settle(ctx context.Context, d *db.DB) error {
	return d.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		if err := metering.EndLeases(ctx, tx, c.cluster, at(c.life[1])); err != nil {
			return err
		}
		_, err := metering.Settle(ctx, tx, c.cluster)
		c.ended = err == nil
		return err
	})
}

// checkMoney says where every nano-unit that was held for the cluster is.
func (c *rental) checkMoney(t *testing.T, d *db.DB) {
	t.Helper()
	var left money.Nano
	for _, a := range []ledger.Account{ledger.Wallet(c.renter, eur), ledger.Hold(c.renter, c.cluster, eur)} {
		n, err := ledger.Balance(context.Background(), d.Q, a)
		if err != nil || n < 0 {
			t.Fatalf("%s: %s, %v", a.Kind, n, err)
		}
		left += n
	}
	var posted money.Nano
	if err := d.Pool.QueryRow(context.Background(), "SELECT sum(m.posted)::bigint FROM lease_meter m JOIN lease l ON "+
		"l.id = m.lease_id WHERE l.cluster_id = $1", c.cluster).Scan(&posted); err != nil {
		t.Fatal(err)
	}
	if left+posted != c.funds {
		t.Fatalf("cluster %s: %s left and %s charged of %s", c.cluster, left, posted, c.funds)
	}
}

// check compares every lease with the oracle's view of the facts and reports the billed ms. What came after the end
// may be refused, and its energy with it, when all billable time was proven.
func (c *rental) check(t *testing.T, d *db.DB) (ms int64) {
	t.Helper()
	for _, l := range c.leases {
		f := l.facts
		f.segments = nil
		for _, s := range l.sent {
			f.segments = append(f.segments, [2]int64{s.StartMS, s.EndMS})
		}
		want := f.judge()
		var renter, host, billed, energy int64
		if err := d.Pool.QueryRow(context.Background(), "SELECT posted, host_posted, posted_billed_ms, energy_mj FROM "+
			"lease_meter WHERE lease_id = $1", l.id).
			Scan(&renter, &host, &billed, &energy); err != nil {
			t.Fatal(err)
		}
		if want.renter.Cmp(big.NewInt(renter)) != 0 || want.host.Cmp(big.NewInt(host)) != 0 || want.ms != billed ||
			len(l.late) == 0 && l.energy != energy {
			t.Fatalf("lease %s: charged %d (host %d) for %d ms, %d mJ; the oracle says %s (host %s) for %d ms, %d mJ",
				l.id, renter, host, billed, energy, want.renter, want.host, want.ms, l.energy)
		}
		var booked, hosts int64
		if err := d.Pool.QueryRow(context.Background(), `SELECT coalesce(sum(f.amount), 0), coalesce(sum(f.amount) FILTER
			(WHERE a.kind = 'host_pending'), 0)
			FROM ledger_tx x JOIN ledger_transfer f ON f.tx_id = x.id JOIN ledger_account a ON a.id = f.credit_account_id
			WHERE x.kind = 'usage' AND x.key LIKE 'usage:' || $1 || ':%'`, l.id.String()).Scan(&booked, &hosts); err != nil {
			t.Fatal(err)
		}
		if booked != renter || hosts != host {
			t.Fatalf("lease %s: the ledger holds %d (host %d), the meter %d (host %d)", l.id, booked, hosts, renter, host)
		}
		ms += billed
	}
	return ms
}
