package metering

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/billing/budget"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/idem"
	"github.com/musterhq/muster/internal/money"
	"github.com/musterhq/muster/internal/notify"
)

// setBudget sets the renter's own budget.
func (w *world) setBudget(l budget.Limits) budget.Budget {
	w.T.Helper()
	b, _, err := budget.New(w.DB, eur).Set(w.T.Context(), account.Principal{Org: w.renter}, budget.Change{Limits: l},
		idem.Request{})
	if err != nil {
		w.T.Fatal(err)
	}
	return b
}

// begin starts one more cluster of the renter's.
func (w *world) begin(rates ...money.Micro) (id.Cluster, Authorisation, error) {
	cl := id.New[id.Cluster]()
	var a Authorisation
	leases := w.newLeases(cl, rates...)
	err := w.DB.InTx(context.Background(), func(ctx context.Context, tx *db.Tx) error {
		b := &pgx.Batch{}
		begun, err := QueueBegin(b, tx, AuthoriseRequest{Cluster: cl, Org: w.renter, Currency: eur}, leases)
		if err != nil {
			return err
		}
		var now time.Time
		db.ReadNow(b, &now)
		if err := tx.Send(ctx, b); err != nil {
			return err
		}
		if a, err = begun.Decide(nil, now); err != nil {
			return err
		}
		if err := w.parents(ctx, tx, leases); err != nil {
			return err
		}
		b = &pgx.Batch{}
		if err := begun.QueueWrite(b, leases); err != nil {
			return err
		}
		return tx.Send(ctx, b)
	})
	return cl, a, err
}

// newLeases returns leases of a cluster that are not written yet, of ranks it does not have.
func (w *world) newLeases(cl id.Cluster, rates ...money.Micro) (out []NewLease) {
	w.T.Helper()
	var ranks int
	if err := w.DB.Pool.QueryRow(context.Background(), "SELECT count(*) FROM lease WHERE cluster_id = $1",
		cl).Scan(&ranks); err != nil {
		w.T.Fatal(err)
	}
	for i, rate := range rates {
		out = append(out, NewLease{
			ID:           id.New[id.Lease](),
			Cluster:      cl,
			Node:         id.New[id.Node](),
			Rank:         ranks + i,
			Host:         w.host,
			Renter:       w.renter,
			Operator:     w.operator,
			GPUModel:     "H100",
			GPUs:         []id.GPU{id.New[id.GPU]()},
			CPUs:         1,
			RAMMB:        1,
			DiskGB:       1,
			Currency:     eur,
			HostSharePPM: 850_000,
			Epoch:        1,
			Rate:         rate,
		})
	}
	return out
}

// committed returns what the renter's clusters have cost and hold, by its own sum.
func (w *world) committed() (n money.Nano) {
	w.T.Helper()
	err := w.DB.Pool.QueryRow(context.Background(), `
		SELECT coalesce((SELECT sum(m.posted) FROM lease l JOIN lease_meter m ON m.lease_id = l.id WHERE l.renter_org_id =
		$1), 0)
			+ coalesce((SELECT sum(b.amount) FROM ledger_account a JOIN ledger_balance b ON b.account_id = a.id WHERE a.org_id =
			$1 AND a.kind = 'renter_hold'), 0)`,
		w.renter).Scan(&n)
	if err != nil {
		w.T.Fatal(err)
	}
	return n
}

func (w *world) budgets() []budget.Budget {
	w.T.Helper()
	all, err := budget.New(w.DB, eur).List(context.Background(), account.Principal{Org: w.renter})
	if err != nil {
		w.T.Fatal(err)
	}
	return all
}

// Clusters of one org begin, are extended, grow, run and end in any order: its budget counts every nano-unit of it and
// is never exceeded by one.
func TestBudget_NeverExceeded(t *testing.T) {
	t.Parallel()
	d := newDB(t)
	for seed := range uint64(4) {
		r := rand.New(rand.NewPCG(seed, 11))
		w := newWorld(t, d, 1000*money.Unit)
		limit := money.Nano(1 + r.Int64N(int64(12*money.Unit)))
		w.setBudget(budget.Limits{Cap: &limit})
		var clusters []id.Cluster
		aged := map[id.Cluster]bool{}
		for range 60 {
			if len(clusters) > 0 {
				w.cluster = clusters[r.IntN(len(clusters))]
			}
			err := w.move(r, &clusters, aged)
			if k := fault.KindOf(err); err != nil && k != fault.QuotaExceeded && k != fault.Conflict {
				t.Fatalf("seed %d: %v", seed, err)
			}
			b := w.budgets()[0]
			if got := w.committed(); got != b.Committed || got > limit {
				t.Fatalf("seed %d: %s committed, the budget of %s counts %s", seed, got, limit, b.Committed)
			}
		}
		w.ledgerBalances()
		for _, cl := range clusters { // what was held comes back, what was spent stays counted
			w.cluster = cl
			w.end(w.now)
			w.Exec("UPDATE lease SET ended_at = ended_at - interval '25 hours', created_at = created_at - interval '30 "+
				"hours' WHERE cluster_id = $1 AND settled_at IS NULL", cl)
			mustEqual(t, "settled", w.settle(), true)
		}
		held := w.money().Wallet
		mustEqual(t, "spent", w.budgets()[0].Committed, 1000*money.Unit-held)
		w.ledgerBalances()
	}
}

// move does one random thing to the world's present cluster.
func (w *world) move(r *rand.Rand, clusters *[]id.Cluster, aged map[id.Cluster]bool) error {
	rate := func() money.Micro { return money.Micro(1 + r.Int64N(5_000_000)) }
	switch n := r.IntN(5); {
	case n == 0 || len(*clusters) == 0:
		cl, _, err := w.begin(rate(), rate())
		if err == nil {
			*clusters = append(*clusters, cl)
		}
		return err
	case n == 1: // one more lease, such as that of a replacement
		return w.DB.InTx(context.Background(), func(ctx context.Context, tx *db.Tx) error {
			if err := w.create(ctx, tx, w.newLeases(w.cluster, rate())); err != nil {
				return err
			}
			_, err := Authorise(ctx, tx, AuthoriseRequest{Cluster: w.cluster, Org: w.renter, Currency: eur})
			return err
		})
	case n == 2 && !aged[w.cluster]: // some of the authorised time runs and is billed
		aged[w.cluster] = true
		by := time.Duration(1+r.IntN(70)) * time.Minute
		w.age(by)
		w.window(w.now-by.Milliseconds(), w.now, 0)
		w.Tx(func(ctx context.Context, tx *db.Tx) error {
			ids, err := tx.Q.LiveLeaseIDs(ctx, w.cluster)
			for _, l := range ids {
				w.Exec("UPDATE lease_meter SET proven_ms = ARRAY[$2::bigint, $3::bigint] WHERE lease_id = $1", l,
					w.now-by.Milliseconds(), w.now)
			}
			return err
		})
		w.Tx(func(ctx context.Context, tx *db.Tx) error { return Post(ctx, tx, w.cluster) })
		return nil
	case n == 3 && r.IntN(3) == 0:
		w.Tx(func(ctx context.Context, tx *db.Tx) error {
			_, err := CloseWindow(ctx, tx, w.cluster, time.Time{})
			return err
		})
		w.end(w.now)
		w.settle()
		return nil
	}
	_, err := w.authorise(nil)
	return err
}

func TestBudget_ConcurrentRents(t *testing.T) {
	t.Parallel()
	w := newWorld(t, newDB(t), 1000*money.Unit)
	limit := 3*money.Unit + 7 // of which each rent wants one an hour
	w.setBudget(budget.Limits{Cap: &limit})
	var rents sync.WaitGroup
	for range 8 {
		rents.Go(func() {
			if _, _, err := w.begin(1_000_000); err != nil && !fault.Is(err, fault.QuotaExceeded) {
				t.Error(err)
			}
		})
	}
	rents.Wait()
	if b := w.budgets()[0]; b.Committed != w.committed() || b.Committed > limit || b.Committed < 3*money.Unit {
		t.Errorf("%s of %s committed; by sum %s", b.Committed, limit, w.committed())
	}
	w.ledgerBalances()
}

func TestBudget_PriceAndDuration(t *testing.T) {
	t.Parallel()
	w := newWorld(t, newDB(t), 100*money.Unit)
	dear, long := money.Micro(2_000_000), int64(600)
	w.setBudget(budget.Limits{MaxRate: &dear, MaxDuration: &long})
	if _, _, err := w.begin(1_000_000, 1_000_001); !fault.Is(err, fault.QuotaExceeded) {
		t.Errorf("%v", err)
	}
	_, a, err := w.begin(1_000_000, 1_000_000)
	if err != nil || a.Limit != LimitDuration {
		t.Fatal(a, err)
	}
	if ahead := a.RunUntil.UnixMilli() - w.now; ahead < 600_000 || ahead > 900_000 {
		t.Errorf("authorised %d ms ahead", ahead)
	}
}

// The first hold, of an hour, may be most of a cluster's budget: its owner has just set it and gets no notice. Later
// holds are notified.
func TestBudget_NoNoticeAtClusterStart(t *testing.T) {
	t.Parallel()
	w := newWorld(t, newDB(t), 100*money.Unit)
	w.addLeases(1_000_000)
	limit := 11 * money.Unit / 10 // an hour and six minutes
	if a, err := w.authorise(&limit); err != nil || a.Held < 9*money.Unit/10 || len(w.notices()) != 0 {
		t.Fatalf("%+v %v, %d notices", a, err, len(w.notices()))
	}
	w.window(w.now, w.now, 0)
	w.age(57 * time.Minute)
	if a, err := w.authorise(&limit); err != nil || a.Held != limit || len(w.notices()) != 1 {
		t.Fatalf("%+v %v, %d notices", a, err, len(w.notices()))
	}
}

// A budget that is set while clusters run counts what is held for them. What is held causes no notice, however much of
// the budget it is; that it keeps a cluster from being extended is notified once.
func TestBudget_NoNoticeForHolds(t *testing.T) {
	t.Parallel()
	w := newWorld(t, newDB(t), 100*money.Unit)
	if _, _, err := w.begin(1_000_000); err != nil {
		t.Fatal(err)
	}
	limit := 7 * money.Unit / 2
	if b := w.setBudget(budget.Limits{Cap: &limit}); b.Committed != w.committed() || b.Committed < money.Unit {
		t.Errorf("begins with %s, %s is held", b.Committed, w.committed())
	}
	for range 3 { // the last is short of money, and takes a short step
		cl, _, err := w.begin(1_000_000)
		if err != nil {
			t.Fatal(err)
		}
		w.cluster = cl
	}
	if got := w.notices(); len(got) != 0 || w.budgets()[0].Committed < 8*limit/10 {
		t.Fatalf("%s committed: %q", w.budgets()[0].Committed, got)
	}
	w.window(w.now, w.now, 0)
	for range 6 { // extended as far as the budget goes, then no further
		w.age(9 * time.Minute)
		for range 2 {
			a, err := w.authorise(nil)
			if err != nil || a.Limit != LimitOrg {
				t.Fatal(a, err)
			}
		}
	}
	if got := w.notices(); !slices.Equal(got, []string{"All of your organisation's budget is spent or held"}) {
		t.Errorf("%q", got)
	}
	if b := w.budgets()[0]; b.Committed > limit || b.Committed != w.committed() {
		t.Errorf("%s of %s", b.Committed, limit)
	}
}

// Each level is notified once, when so much of the budget is booked, in whatever way.
func TestBudget_NoticesAsItIsSpent(t *testing.T) {
	t.Parallel()
	w := newWorld(t, newDB(t), 100*money.Unit, 1_000_000)
	limit := 101 * money.Unit / 100
	w.setBudget(budget.Limits{Cap: &limit})
	w.mustAuthorise() // an hour: 99 % of it
	w.age(time.Hour)
	from := w.now - time.Hour.Milliseconds()
	w.window(from, w.now, 0)
	half, most := "50 % of your organisation's budget is spent", "80 % of your organisation's budget is spent"
	segs := w.segments(w.leases[0], 1, from, w.now, false)
	for _, c := range []struct {
		minutes int64
		want    []string
	}{{30, nil}, {46, []string{half}}, {48, []string{half}}, {60, []string{most, half}}} {
		for len(segs) > 0 && segs[0].EndMS <= from+c.minutes*60_000 {
			w.ingest(segs[0])
			segs = segs[1:]
		}
		for range 2 {
			w.post()
		}
		if got := w.notices(); !slices.Equal(got, c.want) {
			t.Errorf("after %d minutes, %s: %q", c.minutes, w.usage().Posted, got)
		}
		// The page's badge goes by the same rule.
		b := w.budgets()[0]
		told := map[int]int{0: 0, 50: 1, 80: 2}[b.Reached()]
		if b.Spent != w.usage().Posted || b.Spent > b.Committed || told != len(c.want) {
			t.Errorf("after %d minutes, %s of %s spent, %d %% reached", c.minutes, b.Spent, b.Committed, b.Reached())
		}
	}
	if _, err := w.authorise(nil); err != nil { // what is left is not worth a millisecond more than is held
		t.Fatal(err)
	}
	w.Exec("UPDATE budget SET cap = committed WHERE org_id = $1", w.renter)
	if _, err := w.authorise(nil); err != nil {
		t.Fatal(err)
	}
	if got := w.notices(); len(got) != 3 || got[0] != "All of your organisation's budget is spent or held" {
		t.Errorf("%q", got)
	}
}

// notices returns the titles of the renter's notices, newest first.
func (w *world) notices() (titles []string) {
	w.T.Helper()
	all, err := notify.List(w.T.Context(), w.DB.Q, w.renter, notify.Filter{Limit: 100})
	if err != nil {
		w.T.Fatal(err)
	}
	for _, n := range all {
		titles = append(titles, n.Title)
	}
	return titles
}
