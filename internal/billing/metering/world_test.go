package metering

import (
	"context"
	"crypto/ed25519"
	"fmt"
	"testing"
	"time"

	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/billing/ledger"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/money"
	"github.com/musterhq/muster/internal/testing/billingtest"
	"github.com/musterhq/muster/internal/testing/dbtest"
)

const (
	eur  = billingtest.EUR
	boot = "b-1"
)

// world is a renter with money, an operator with one host, and one cluster with a lease per rank on it.
type world struct {
	*billingtest.World
	renter   id.Org
	operator id.Org
	host     id.Host
	key      ed25519.PrivateKey
	cluster  id.Cluster
	leases   []id.Lease
	anchor   agentapi.Anchor
	now      int64 // PostgreSQL's clock when the world was made, unix ms
}

// newWorld funds the wallet, creates leases at the given rates and an anchor.
func newWorld(t testing.TB, d *db.DB, funds money.Nano, rates ...money.Micro) *world {
	t.Helper()
	w := &world{World: billingtest.New(t, d), cluster: id.New[id.Cluster]()}
	w.renter, w.operator = w.Org(), w.Org()
	public, key, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	w.key, w.host = key, w.Host(w.operator, public)
	w.Tx(func(ctx context.Context, tx *db.Tx) error {
		now, err := tx.Now(ctx)
		if err != nil {
			return err
		}
		w.now = now.UnixMilli()
		if funds > 0 {
			if _, err := ledger.Post(ctx, tx, ledger.Entry{
				Kind: "topup",
				Key:  "topup:" + w.cluster.String(),
				Transfers: []ledger.Transfer{
					{Debit: ledger.StripeClearing(eur), Credit: ledger.Wallet(w.renter, eur), Amount: funds}},
			}); err != nil {
				return err
			}
		}
		a, err := NewCollector(w.DB).IssueAnchor(w.T.Context(), w.host, boot, 10_000_000)
		w.anchor = *a
		return err
	})
	w.addLeases(rates...)
	return w
}

func (w *world) addLeases(rates ...money.Micro) {
	w.T.Helper()
	var in []NewLease
	for i, rate := range rates {
		in = append(in, NewLease{
			ID: id.New[id.Lease](), Cluster: w.cluster, Node: id.New[id.Node](), Rank: len(w.leases) + i, Host: w.host,
			Renter: w.renter, Operator: w.operator, GPUModel: "H100", GPUs: []id.GPU{id.New[id.GPU](), id.New[id.GPU]()},
			CPUs: 8, RAMMB: 1000, DiskGB: 10, Currency: eur, HostSharePPM: 850_000, Epoch: 1, Rate: rate,
			Items: []PriceItem{{Label: "2 × H100", Quantity: 2, Unit: "gpu", UnitRate: rate / 2, Rate: rate}},
		})
	}
	w.Tx(func(ctx context.Context, tx *db.Tx) error { return w.create(ctx, tx, in) })
	for _, l := range in {
		w.leases = append(w.leases, l.ID)
	}
}

// create writes leases, and the cluster and nodes that they belong to.
func (w *world) create(ctx context.Context, tx *db.Tx, in []NewLease) error {
	if err := w.parents(ctx, tx, in); err != nil {
		return err
	}
	return CreateLeases(ctx, tx, in)
}

func (w *world) parents(ctx context.Context, tx *db.Tx, in []NewLease) error {
	for _, l := range in {
		if err := dbtest.InsertCluster(ctx, tx, l.Cluster, l.Renter, l.Currency,
			dbtest.Place{Node: l.Node, Lease: l.ID, Host: l.Host, Rank: l.Rank}); err != nil {
			return err
		}
	}
	return nil
}

// authorise holds money for as long as it goes.
func (w *world) authorise(budget *money.Nano) (a Authorisation, err error) {
	err = w.DB.InTx(context.Background(), func(ctx context.Context, tx *db.Tx) (err error) {
		a, err = Authorise(ctx, tx, AuthoriseRequest{Cluster: w.cluster, Org: w.renter, Currency: eur, Budget: budget})
		return err
	})
	return a, err
}

func (w *world) mustAuthorise() Authorisation {
	w.T.Helper()
	a, err := w.authorise(nil)
	if err != nil {
		w.T.Fatal(err)
	}
	return a
}

// age moves what was authorised into the past, so that an hour can be used up without waiting for it. To be called
// before there are segments, which never change.
func (w *world) age(by time.Duration) {
	w.T.Helper()
	ms := by.Milliseconds()
	w.Exec(`UPDATE lease SET created_at = created_at - $2::bigint * interval '1 ms', run_until = run_until - $2::bigint *
		interval '1 ms',
		covered_from_ms = covered_from_ms - $2, ended_at = ended_at - $2::bigint * interval '1 ms' WHERE cluster_id =
		$1`, w.cluster, ms)
	w.Exec("UPDATE cluster_window SET opened_ms = opened_ms - $2, confirmed_until_ms = confirmed_until_ms - $2, "+
		"closed_ms = closed_ms - $2 WHERE cluster_id = $1", w.cluster, ms)
}

func at(ms int64) time.Time { return time.UnixMilli(ms) }

// window opens a window, confirms it, and closes it orderly when end is not 0. Moments are unix ms.
func (w *world) window(open, confirmed, end int64) {
	w.T.Helper()
	w.Tx(func(ctx context.Context, tx *db.Tx) error {
		if err := OpenWindow(ctx, tx, w.cluster, at(open)); err != nil {
			return err
		}
		if err := AdvanceConfirmed(ctx, tx, w.cluster, at(confirmed)); err != nil || end == 0 {
			return err
		}
		_, err := CloseWindow(ctx, tx, w.cluster, at(end))
		return err
	})
}

// segments are signed, 300 s long, from..to, numbered from seq; the last is final when wanted.
func (w *world) segments(lease id.Lease, seq, from, to int64, final bool) []agentapi.Segment {
	var out []agentapi.Segment
	for start := from; start < to; seq++ {
		end := min(to, start+300_000)
		out = append(out, w.segment(lease, seq, start, end, final && end == to))
		start = end
	}
	return out
}

func (w *world) segment(lease id.Lease, seq, from, to int64, final bool) agentapi.Segment {
	s := agentapi.Segment{Lease: lease.String(), Epoch: 1, BootID: boot, Seq: seq, Anchor: w.anchor.Number,
		BootEndMS: to - w.anchor.ServerMS + w.anchor.BootMS, StartMS: from, EndMS: to, EnergyMJ: to - from, Final: final}
	s.Sign(w.host.String(), w.key)
	return s
}

func (w *world) ingest(segs ...agentapi.Segment) []agentapi.UsageAck {
	w.T.Helper()
	acks, err := NewCollector(w.DB).Ingest(context.Background(), w.host, segs, nil)
	if err != nil {
		w.T.Fatal(err)
	}
	return acks
}

func (w *world) settle() (done bool) {
	w.T.Helper()
	w.Tx(func(ctx context.Context, tx *db.Tx) (err error) {
		done, err = Settle(ctx, tx, w.cluster)
		return err
	})
	return done
}

func (w *world) end(ms int64) {
	w.T.Helper()
	w.Tx(func(ctx context.Context, tx *db.Tx) error { return EndLeases(ctx, tx, w.cluster, at(ms)) })
}

// money is where every nano-unit of this world is.
type moneyState struct{ Wallet, Hold, Host, Fee money.Nano }

func (w *world) money() moneyState {
	w.T.Helper()
	b := func(a ledger.Account) money.Nano {
		n, err := ledger.Balance(context.Background(), w.DB.Q, a)
		if err != nil {
			w.T.Fatal(err)
		}
		return n
	}
	return moneyState{b(ledger.Wallet(w.renter, eur)), b(ledger.Hold(w.renter, w.cluster, eur)),
		b(ledger.HostPending(w.operator, eur)), b(ledger.Fee(eur))}
}

func (w *world) usage() Usage {
	w.T.Helper()
	u, err := ClusterUsage(context.Background(), w.DB.Q, w.cluster)
	if err != nil {
		w.T.Fatal(err)
	}
	w.sameCost(u)
	return u
}

// sameCost compares what lists and pages show with the segments.
func (w *world) sameCost(u Usage) {
	w.T.Helper()
	costs, err := Costs(context.Background(), w.DB.Q, []id.Cluster{w.cluster})
	if err != nil {
		w.T.Fatal(err)
	}
	c, ok := costs[w.cluster]
	if !ok || c.Posted != u.Posted || c.GPUMS != u.GPUMS || c.EnergyMJ != u.EnergyMJ || c.Settled != u.Settled ||
		c.BillableMS > u.BillableMS {
		w.T.Errorf("costs %+v; usage posted %s, %d GPU ms, %d mJ, settled %v, %d ms", c, u.Posted, u.GPUMS, u.EnergyMJ,
			u.Settled, u.BillableMS)
	}
	if u.Settled && (c.Estimate != u.Cost || c.EstimateMS > u.EstimateMS) {
		w.T.Errorf("settled at %s for %d ms; costs say %s for %d ms", u.Cost, u.EstimateMS, c.Estimate, c.EstimateMS)
	}
}

// posted books all that is proven and returns what the ledger holds then.
func (w *world) posted() money.Nano {
	w.T.Helper()
	w.Tx(func(ctx context.Context, tx *db.Tx) error {
		leases, err := lockCluster(ctx, tx, w.cluster)
		if err != nil {
			return err
		}
		return charge(ctx, tx, unsettled(leases), inFull)
	})
	return w.usage().Posted
}

func (w *world) ledgerBalances() {
	w.T.Helper()
	b, err := ledger.Check(context.Background(), w.DB)
	if err != nil || !b.Balanced() {
		w.T.Fatalf("books: %v %v", b.Problems, err)
	}
}

// story returns one deterministic hour: two ranks, two windows with a suspension between them, some time not proven.
func story(w *world) (batches [][]agentapi.Segment, finish func()) {
	w.mustAuthorise()
	w.age(time.Hour)
	t0 := w.now - 3_500_000
	w.window(t0, t0+1_200_123, 0)
	a, b := w.leases[0], w.leases[1]
	batches = [][]agentapi.Segment{
		w.segments(a, 1, t0-5_000, t0+1_500_000, false),
		append(w.segments(b, 1, t0-4_000, t0+900_000, false), w.segment(b, 5, t0+1_000_000, t0+1_210_000, false)),
		append(w.segments(a, 7, t0+1_500_000, t0+2_000_777, true), w.segments(b, 6, t0+1_210_000, t0+1_999_999, true)...),
	}
	return batches, func() {
		w.Tx(func(ctx context.Context, tx *db.Tx) error { // a rank was lost: the window ends where all were known well
			_, err := CloseWindow(ctx, tx, w.cluster, time.Time{})
			return err
		})
		w.window(t0+1_300_000, t0+1_900_000, t0+2_000_000)
		w.end(t0 + 2_000_000)
	}
}

func newDB(t testing.TB) *db.DB { return dbtest.New(t) }

func mustEqual[T comparable](t testing.TB, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Fatalf("%s: %v, want %v", what, fmt.Sprint(got), fmt.Sprint(want))
	}
}
