// Package meteringtest makes leases in states that tests of other packages need.
package meteringtest

import (
	"context"
	"crypto/ed25519"
	"testing"
	"time"

	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/billing/ledger"
	"github.com/musterhq/muster/internal/billing/metering"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/money"
	"github.com/musterhq/muster/internal/testing/billingtest"
	"github.com/musterhq/muster/internal/testing/dbtest"
)

// Rate is what the leases cost per hour: 3.6, a thousandth a second. Their hosts' share is 85 %.
const Rate = 3_600_000

const (
	boot   = "b-1"
	bootMS = 10_000_000
)

// Lease is a lease on a host that has no other.
type Lease struct {
	*billingtest.World
	ID       id.Lease
	Cluster  id.Cluster
	Host     id.Host
	Operator id.Org
	key      ed25519.PrivateKey
	anchor   *agentapi.Anchor
}

// New makes a host of the operator's and a lease of the renter's on it, authorised an hour ago for an hour. It puts 100
// into the renter's wallet.
func New(t testing.TB, d *db.DB, renter, operator id.Org, currency string) *Lease {
	t.Helper()
	public, key, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	w := billingtest.New(t, d)
	l := &Lease{
		World:    w,
		ID:       id.New[id.Lease](),
		Cluster:  id.New[id.Cluster](),
		Host:     w.Host(operator, public),
		Operator: operator,
		key:      key,
	}
	l.Tx(func(ctx context.Context, tx *db.Tx) error {
		if _, err := ledger.Post(ctx, tx, ledger.Entry{
			Kind: "topup",
			Key:  "topup:" + l.Cluster.String(),
			Transfers: []ledger.Transfer{
				{Debit: ledger.StripeClearing(currency), Credit: ledger.Wallet(renter, currency), Amount: 100 * money.Unit}},
		}); err != nil {
			return err
		}
		if l.anchor, err = metering.NewCollector(l.DB).IssueAnchor(l.T.Context(), l.Host, boot, bootMS); err != nil {
			return err
		}
		node := id.New[id.Node]()
		if err := dbtest.InsertCluster(ctx, tx, l.Cluster, renter, currency,
			dbtest.Place{Node: node, Lease: l.ID, Host: l.Host}); err != nil {
			return err
		}
		err := metering.CreateLeases(ctx, tx, []metering.NewLease{{
			ID:           l.ID,
			Cluster:      l.Cluster,
			Node:         node,
			Host:         l.Host,
			Renter:       renter,
			Operator:     operator,
			GPUModel:     "H100",
			GPUs:         []id.GPU{id.New[id.GPU]()},
			CPUs:         1,
			RAMMB:        1,
			DiskGB:       1,
			Currency:     currency,
			HostSharePPM: 850_000,
			Epoch:        1,
			Rate:         Rate,
			Items:        []metering.PriceItem{{Label: "1 × H100", Quantity: 1, Unit: "gpu", UnitRate: Rate, Rate: Rate}},
		}})
		if err != nil {
			return err
		}
		_, err = metering.Authorise(ctx, tx, metering.AuthoriseRequest{Cluster: l.Cluster, Org: renter, Currency: currency})
		return err
	})
	l.Exec(`UPDATE lease SET created_at = created_at - interval '1 hour', run_until = run_until - interval '1 hour',
		covered_from_ms = covered_from_ms - 3600000 WHERE id = $1`, l.ID)
	return l
}

// sign sends a segment of ms milliseconds that begins ago milliseconds ago.
func (l *Lease) sign(seq, ago, ms int64, final bool) {
	l.T.Helper()
	start := l.anchor.ServerMS - ago
	s := agentapi.Segment{
		Lease:     l.ID.String(),
		Epoch:     1,
		BootID:    boot,
		Seq:       seq,
		Anchor:    l.anchor.Number,
		BootEndMS: bootMS - ago + ms,
		StartMS:   start,
		EndMS:     start + ms,
		EnergyMJ:  ms,
		Final:     final,
	}
	s.Sign(l.Host.String(), l.key)
	if _, err := metering.NewCollector(l.DB).Ingest(l.T.Context(), l.Host, []agentapi.Segment{s}, nil); err != nil {
		l.T.Fatal(err)
	}
}

const half = 1_800_000 // ms

// Run makes the lease run for ms milliseconds, at most 305,000, half an hour ago, and ends and settles it. It cost
// Cost(ms).
func (l *Lease) Run(ms int64) {
	l.T.Helper()
	start, end := time.UnixMilli(l.anchor.ServerMS-half), time.UnixMilli(l.anchor.ServerMS-half+ms)
	l.Tx(func(ctx context.Context, tx *db.Tx) error {
		if err := metering.OpenWindow(ctx, tx, l.Cluster, start); err != nil {
			return err
		}
		return metering.AdvanceConfirmed(ctx, tx, l.Cluster, end)
	})
	l.sign(1, half, ms, true)
	l.Tx(func(ctx context.Context, tx *db.Tx) error {
		if _, err := metering.CloseWindow(ctx, tx, l.Cluster, end); err != nil {
			return err
		}
		if err := metering.EndLeases(ctx, tx, l.Cluster, end); err != nil {
			return err
		}
		_, err := metering.Settle(ctx, tx, l.Cluster)
		return err
	})
}

// Cost returns what a lease costs for ms milliseconds, and its host's part of it.
func Cost(ms int64) (cost, host money.Nano) {
	cost = money.CostOf(Rate, ms)
	return cost, money.Share(cost, 850_000)
}

// Lie makes the host sign two different records of the lease's time: the lease is frozen.
func (l *Lease) Lie() {
	l.T.Helper()
	l.sign(1, half, 1, false)
	l.sign(1, half, 2, false)
}

// Frozen returns a lease on a host of the operator's that was frozen.
func Frozen(t testing.TB, d *db.DB, renter, operator id.Org, currency string) id.Lease {
	t.Helper()
	l := New(t, d, renter, operator, currency)
	l.Lie()
	return l.ID
}
