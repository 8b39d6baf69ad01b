package statement_test

import (
	"context"
	"crypto/ed25519"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/billing/ledger"
	"github.com/musterhq/muster/internal/billing/metering"
	"github.com/musterhq/muster/internal/billing/statement"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/money"
	"github.com/musterhq/muster/internal/testing/billingtest"
	"github.com/musterhq/muster/internal/testing/dbtest"
)

// rental is the example of docs/money.md, played through the real books: two nodes of four GPUs at 2.50 and 2.47 per
// GPU-hour; running for 754.321 s, of which the second host can prove all but 4.2 s.
type rental struct {
	*billingtest.World
	renter, operator id.Org
	host             id.Host
	cluster          id.Cluster
	leases           [2]id.Lease
	start            int64 // unix ms
	held             money.Nano
	sign             func(agentapi.Segment) agentapi.Segment
}

func newRental(t *testing.T) *rental {
	t.Helper()
	w := billingtest.New(t, dbtest.New(t))
	r := &rental{World: w, renter: w.Org(), operator: w.Org(), cluster: id.New[id.Cluster]()}
	w.Exec("UPDATE org SET zone = 'Europe/Berlin'")
	pub, key, _ := ed25519.GenerateKey(nil)
	r.host = w.Host(r.operator, pub)
	w.Exec("UPDATE host SET name = 'h'")
	var anchor *agentapi.Anchor
	r.Tx(func(ctx context.Context, tx *db.Tx) (err error) {
		if _, err = ledger.Post(ctx, tx, ledger.Entry{
			Kind: "topup",
			Key:  "topup:pi_1",
			Memo: "card payment",
			Transfers: []ledger.Transfer{
				{Debit: ledger.StripeClearing("EUR"), Credit: ledger.Wallet(r.renter, "EUR"), Amount: 100 * money.Unit}},
		}); err != nil {
			return err
		}
		if anchor, err = metering.NewCollector(r.DB).IssueAnchor(t.Context(), r.host, "b", 50_000_000); err != nil {
			return err
		}
		var in []metering.NewLease
		for rank, rate := range []money.Micro{10_000_000, 9_880_000} {
			r.leases[rank] = id.New[id.Lease]()
			node := id.New[id.Node]()
			if err := dbtest.InsertCluster(ctx, tx, r.cluster, r.renter, "EUR",
				dbtest.Place{Node: node, Lease: r.leases[rank], Host: r.host, Rank: rank}); err != nil {
				return err
			}
			in = append(in, metering.NewLease{
				ID:           r.leases[rank],
				Cluster:      r.cluster,
				Node:         node,
				Rank:         rank,
				Host:         r.host,
				Renter:       r.renter,
				Operator:     r.operator,
				GPUModel:     "H100",
				GPUs:         []id.GPU{id.New[id.GPU](), id.New[id.GPU](), id.New[id.GPU](), id.New[id.GPU]()},
				Currency:     "EUR",
				HostSharePPM: 850_000,
				Epoch:        1,
				Rate:         rate,
			})
		}
		if err = metering.CreateLeases(ctx, tx, in); err != nil {
			return err
		}
		a, err := metering.Authorise(ctx, tx, metering.AuthoriseRequest{Cluster: r.cluster, Org: r.renter, Currency: "EUR"})
		r.held = a.Held
		return err
	})
	// The hour that was authorised lies behind us, so that the rental can be reported at once.
	w.Exec("UPDATE lease SET created_at = created_at - interval '1 hour', run_until = run_until - interval '1 hour', " +
		"covered_from_ms = covered_from_ms - 3600000")
	r.start = anchor.ServerMS - 3_000_000
	r.sign = func(s agentapi.Segment) agentapi.Segment {
		s.BootID, s.Anchor, s.Epoch, s.BootEndMS = "b", anchor.Number, 1, s.EndMS-anchor.ServerMS+anchor.BootMS
		s.Sign(r.host.String(), key)
		return s
	}
	return r
}

const ranMS = 754_321

// open starts the window and confirms what ran.
func (r *rental) open(t *testing.T) {
	t.Helper()
	r.Tx(func(ctx context.Context, tx *db.Tx) error {
		if err := metering.OpenWindow(ctx, tx, r.cluster, time.UnixMilli(r.start)); err != nil {
			return err
		}
		return metering.AdvanceConfirmed(ctx, tx, r.cluster, time.UnixMilli(r.start+ranMS))
	})
}

// prove sends the segments of one rank, from so many ms before the window to the end of what it can prove.
func (r *rental) prove(t *testing.T, rank int, before, through int64) {
	t.Helper()
	var segs []agentapi.Segment
	for from, seq := r.start-before, int64(1); from < r.start+through; seq++ {
		to := min(from+300_000, r.start+through)
		segs = append(segs, r.sign(agentapi.Segment{
			Lease:    r.leases[rank].String(),
			Seq:      seq,
			StartMS:  from,
			EndMS:    to,
			EnergyMJ: 1000 * (to - from),
			Final:    to == r.start+through,
		}))
		from = to
	}
	acks, err := metering.NewCollector(r.DB).Ingest(t.Context(), r.host, segs, nil)
	if err != nil || len(acks) != 1 || acks[0].Refused != "" {
		t.Fatal(acks, err)
	}
}

// suspend closes the window at the last confirmed moment, as the loss of a rank does, and has the cluster looked at.
func (r *rental) suspend(t *testing.T) {
	t.Helper()
	r.Tx(func(ctx context.Context, tx *db.Tx) error {
		if _, err := metering.CloseWindow(ctx, tx, r.cluster, time.Time{}); err != nil {
			return err
		}
		return metering.Post(ctx, tx, r.cluster)
	})
}

// end releases the cluster.
func (r *rental) end(t *testing.T) {
	t.Helper()
	r.Tx(func(ctx context.Context, tx *db.Tx) error {
		at := time.UnixMilli(r.start + ranMS)
		if _, err := metering.CloseWindow(ctx, tx, r.cluster, at); err != nil {
			return err
		}
		if err := metering.EndLeases(ctx, tx, r.cluster, at); err != nil {
			return err
		}
		done, err := metering.Settle(ctx, tx, r.cluster)
		if err == nil && !done {
			err = fmt.Errorf("not settled")
		}
		return err
	})
}

func (r *rental) balance(t *testing.T) statement.Balance {
	t.Helper()
	b, err := statement.New(r.DB, "EUR", statement.Party{}).OrgBalance(t.Context(), r.renter)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// The balance shows what is owed for storage.
func TestBalance_StorageOwed(t *testing.T) {
	t.Parallel()
	r := newRental(t)
	if b := r.balance(t); b.StorageOwed != 0 || b.StorageOwedSince != nil {
		t.Errorf("%+v", b)
	}
	billingtest.OweStorage(t, r.DB, r.renter, 120*money.Unit, time.Hour)
	billingtest.OweStorage(t, r.DB, r.renter, 3*money.Unit, 2*time.Hour)
	b := r.balance(t)
	if b.StorageOwed != 123*money.Unit || b.StorageOwedSince == nil || time.Since(*b.StorageOwedSince) < 2*time.Hour {
		t.Errorf("%+v", b)
	}
}

// The numbers in docs/money.md are those of the real books.
func TestReport_WorkedExample(t *testing.T) {
	t.Parallel()
	r := newRental(t)
	r.open(t)
	r.prove(t, 0, 2_000, ranMS)
	r.prove(t, 1, 1_500, ranMS-4_200)
	r.end(t)
	u, err := statement.New(r.DB, "EUR", statement.Party{}).ClusterUsage(t.Context(), r.cluster)
	if err != nil {
		t.Fatal(err)
	}
	var sum money.Nano
	var perRank [2]money.Nano
	var ms int64
	for _, s := range u.Segments {
		sum += s.Cost
		perRank[s.Rank] += s.Cost
		ms += int64(s.Seconds)
	}
	if sum != u.Cost || u.Cost != u.Posted || u.CostSoFar != u.Cost || !u.Settled || ms != 2*ranMS-4_200 {
		t.Fatalf("%+v: lines add up to %s, %d ms", u, sum, ms)
	}
	e, err := statement.New(r.DB, "EUR", statement.Party{}).HostEarnings(t.Context(), r.operator, r.host)
	if err != nil {
		t.Fatal(err)
	}
	fee, err := ledger.Balance(t.Context(), r.DB.Q, ledger.Fee("EUR"))
	if err != nil {
		t.Fatal(err)
	}
	if e.Total+fee != u.Cost || e.Pending != 0 || len(e.Leases) != 2 || e.Leases[0].Earned+e.Leases[1].Earned != e.Total {
		t.Fatalf("earned %s, fee %s, cost %s", e.Total, fee, u.Cost)
	}
	var days money.Nano
	for _, d := range e.Days {
		days += d.Earned
	}
	b := r.balance(t)
	if days != e.Total || b.Available != 100*money.Unit-u.Cost || b.Held != 0 || b.Accrued != 0 || b.BurnPerHour != 0 ||
		b.RunwaySeconds != nil {
		t.Fatalf("days %s, %+v", days, b)
	}
	statementAddsUp(t, r, u.Cost)
	bill := []string{r.held.String(), perRank[0].String(), perRank[1].String(), u.Cost.String(), b.Available.String(),
		u.BillableSeconds.String(), u.GPUSeconds.String(), u.EnergyWh}
	earned := []string{u.Cost.String(), e.Leases[1].Earned.String(), e.Leases[0].Earned.String(), e.Total.String(),
		fee.String(), u.BillableSeconds.String()}
	p := r.operatorStatement(t, func(q *statement.OperatorRequest) { q.By = "lease" })
	if len(p.Groups) != 2 || p.Billed != u.Cost || p.Earned != e.Total || p.Fee != fee {
		t.Fatalf("the operator's statement: %+v", p)
	}
	var st []string
	for _, g := range p.Groups {
		st = append(st, g.Seconds.String(), g.Billed.String(), g.Fee.String(), g.Earned.String())
	}
	lines := []string{u.Segments[0].Cost.String(), u.Segments[1].Cost.String(), u.Segments[2].Cost.String()}
	for name, numbers := range map[string][]string{
		"docs/money.md":         slices.Concat(bill, earned, lines),
		"docs/your-bill.md":     bill,
		"docs/your-earnings.md": slices.Concat(earned, st),
	} {
		doc := document(t, name)
		for _, n := range numbers {
			if !strings.Contains(doc, n) {
				t.Errorf("%s does not say %s", name, n)
			}
		}
	}
}

func statementAddsUp(t *testing.T, r *rental, cost money.Nano) {
	t.Helper()
	for _, by := range []string{"", "cluster", "day", "project", "person", "lease", "label:team"} {
		p, err := statement.New(r.DB, "EUR", statement.Party{}).Statement(t.Context(), r.renter,
			time.Now().AddDate(0, 0, -3).Format(time.DateOnly), "", by)
		if err != nil {
			t.Fatal(err)
		}
		var groups, lines money.Nano
		for _, g := range p.Groups {
			groups += g.Cost
		}
		for _, l := range p.Lines {
			lines += l.Cost
		}
		if p.Total != cost || groups != cost || lines != cost || p.EnergyWh == "0.000" || len(p.Leases) != 2 {
			t.Fatalf("by %q: %+v", by, p)
		}
		if p.Leases[0].UnprovenSeconds != 0 || p.Leases[1].UnprovenSeconds != 4_200 || p.Leases[0].OutsideSeconds <= 0 {
			t.Fatalf("not billed: %+v", p.Leases)
		}
		var b strings.Builder
		if err := p.CSV(&b); err != nil {
			t.Fatal(err)
		}
		rows, err := csv.NewReader(strings.NewReader(b.String())).ReadAll()
		if err != nil || len(rows) != 1+len(p.Lines) || rows[1][11] != p.Lines[0].Cost.String() {
			t.Fatal(rows, err)
		}
	}
	none, err := statement.New(r.DB, "EUR", statement.Party{}).Statement(t.Context(), r.operator, "", "", "")
	if err != nil || none.Total != 0 || len(none.Lines) != 0 {
		t.Fatal(none, err)
	}
	long, err := statement.New(r.DB, "EUR", statement.Party{}).Statement(t.Context(), r.renter, "2020-01-01", "2020-02-01",
		"")
	if err != nil || long.Total != 0 || len(long.Leases) != 0 {
		t.Fatal(long, err)
	}
	for _, bad := range [][3]string{{"yesterday", "", ""}, {"2026-02-30", "", ""}, {"2026-02-02", "2026-02-01", ""},
		{"2020-01-01", "2026-01-01", ""}, {"", "", "moon"}} {
		if _, err := statement.New(r.DB, "EUR", statement.Party{}).Statement(t.Context(), r.renter, bad[0], bad[1],
			bad[2]); !fault.Is(err,
			fault.Invalid) {
			t.Errorf("%v: %v", bad, err)
		}
	}
}

func document(t *testing.T, name string) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for ; ; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			b, err := os.ReadFile(filepath.Join(dir, name))
			if err != nil {
				t.Fatal(err)
			}
			return string(b)
		}
		if dir == filepath.Dir(dir) {
			t.Fatal("no go.mod above")
		}
	}
}

func TestBalance_WhileRunning(t *testing.T) {
	t.Parallel()
	r := newRental(t)
	r.open(t)
	r.prove(t, 0, 0, 300_000)
	b := r.balance(t)
	spent := money.CostOf(10_000_000, 300_000) // proven, not booked yet: still in what is held
	if b.Available != 100*money.Unit-r.held || b.Held != r.held || b.BurnPerHour != 19_880_000 || b.Accrued < spent ||
		b.Accrued > b.Held {
		t.Fatalf("%+v", b)
	}
	if want := money.MillisOf(b.Available+b.Held-b.Accrued, b.BurnPerHour) / 1000; b.RunwaySeconds == nil ||
		*b.RunwaySeconds != want {
		t.Fatalf("runway %v, want %d", b.RunwaySeconds, want)
	}
	j, err := json.Marshal(b)
	if err != nil || !strings.Contains(string(j), `"burn_per_hour":"19.880000"`) ||
		!strings.Contains(string(j), `"currency":"EUR"`) {
		t.Fatal(string(j), err)
	}
	r.suspend(t)
	if s := r.balance(t); s.Held != r.held-spent || s.Available+s.Held-s.Accrued < b.Available+b.Held-b.Accrued {
		t.Fatalf("%+v after %+v", s, b)
	}
	costs, err := metering.Costs(t.Context(), r.DB.Q, []id.Cluster{r.cluster, id.New[id.Cluster]()})
	if err != nil || len(costs) != 1 || costs[r.cluster].Posted != spent || costs[r.cluster].BillableMS != 300_000 ||
		costs[r.cluster].Estimate <= spent {
		t.Fatal(costs, err)
	}
}

func TestTransactions(t *testing.T) {
	t.Parallel()
	r := newRental(t)
	r.open(t)
	r.prove(t, 0, 0, 300_000)
	r.suspend(t)
	txs, err := statement.New(r.DB, "EUR", statement.Party{}).Transactions(t.Context(), r.renter, id.LedgerTx{}, 10)
	if err != nil {
		t.Fatal(err)
	}
	type row struct {
		Kind                              string
		Amount, AvailableAfter, HeldAfter money.Nano
	}
	spent := money.CostOf(10_000_000, 300_000)
	var got []row
	for _, x := range txs {
		got = append(got, row{x.Kind, x.Amount, x.AvailableAfter, x.HeldAfter})
	}
	want := []row{
		{"usage", -spent, 100*money.Unit - r.held, r.held - spent},
		{"authorise", 0, 100*money.Unit - r.held, r.held},
		{"topup", 100 * money.Unit, 100 * money.Unit, 0},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatal(diff)
	}
	earned, err := statement.New(r.DB, "EUR", statement.Party{}).Transactions(t.Context(), r.operator, id.LedgerTx{}, 10)
	if err != nil || len(earned) != 1 || earned[0].Kind != "earning" || earned[0].EarnedAfter != money.Share(spent,
		850_000) {
		t.Fatal(earned, err)
	}
}

func TestEarnings_OwnHostsOnly(t *testing.T) {
	t.Parallel()
	r := newRental(t)
	for _, c := range []struct {
		org  id.Org
		host id.Host
	}{{r.renter, r.host}, {r.operator, id.New[id.Host]()}} {
		if _, err := statement.New(r.DB, "EUR", statement.Party{}).HostEarnings(t.Context(), c.org, c.host); !fault.Is(err,
			fault.NotFound) {
			t.Error(err)
		}
	}
}

func TestReport_SecondsExact(t *testing.T) {
	t.Parallel()
	for ms, want := range map[statement.Seconds]string{
		0:              "0.000",
		1:              "0.001",
		999:            "0.999",
		754_321:        "754.321",
		31_536_000_000: "31536000.000",
	} {
		b, err := json.Marshal(ms)
		if err != nil || string(b) != want {
			t.Errorf("%d: %s %v", int64(ms), b, err)
		}
		var back statement.Seconds
		if err := json.Unmarshal(b, &back); err != nil || back != ms {
			t.Errorf("%s: %d %v", b, back, err)
		}
	}
}
