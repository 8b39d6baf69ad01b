package cluster_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/billing/bond"
	"github.com/musterhq/muster/internal/billing/fairness"
	"github.com/musterhq/muster/internal/billing/ledger"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/fleet/cluster"
	"github.com/musterhq/muster/internal/fleet/cluster/lifecycle"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/idem"
	"github.com/musterhq/muster/internal/interval"
	"github.com/musterhq/muster/internal/money"
	"github.com/musterhq/muster/internal/testing/dbtest"
	"github.com/musterhq/muster/internal/testing/fleettest"
)

// gangField is a world whose hosts belong to an operator each, with a bond each.
type gangField struct {
	*world
	operators []account.Principal
	bond      money.Nano
}

func newGangField(t *testing.T, hosts int, kept money.Nano, d *db.DB) *gangField {
	t.Helper()
	f := &gangField{world: newWorld(t, worldConfig{db: d}), bond: kept}
	for i := range hosts {
		f.operator = f.SignUp(fmt.Sprintf("operator-%d", i))
		f.addHost(i, 1)
		f.operators = append(f.operators, f.operator)
		if kept > 0 {
			f.move(ledger.StripeClearing(usd), ledger.HostBond(f.operator.Org, usd), kept)
		}
	}
	return f
}

func (f *gangField) move(from, to ledger.Account, n money.Nano) {
	f.t.Helper()
	f.tx(func(ctx context.Context, tx *db.Tx) error {
		_, err := ledger.Post(ctx, tx, ledger.Entry{Kind: "topup", Key: "test:" + id.New[id.LedgerTx]().String(),
			Transfers: []ledger.Transfer{{Debit: from, Credit: to, Amount: n}}})
		return err
	})
}

func (f *gangField) has(a ledger.Account) money.Nano {
	f.t.Helper()
	n, err := ledger.Balance(f.ctx, f.d.Q, a)
	f.must(err)
	return n
}

func (f *gangField) leases(c cluster.Cluster) []bond.Frozen {
	f.t.Helper()
	got, err := bond.OfCluster(f.ctx, f.d.Q, c.ID)
	f.must(err)
	byRank := make([]bond.Frozen, len(got))
	for _, l := range got {
		byRank[l.Rank] = l
	}
	return byRank
}

// signs adds a signed segment of a lease, in unix ms.
func (f *gangField) signs(l id.Lease, span interval.Span) {
	f.t.Helper()
	f.exec(`INSERT INTO usage_segment (lease_id, epoch, boot_id, seq, anchor, boot_end_ms, start_ms, end_ms, energy_mj,
		final, payload_hash, signature)
		VALUES ($1, 1, 'past-' || $2::bigint, 1, 1, $3, $2::bigint, $3, 0, false, '\x00', '\x00')`, l, span.Start, span.End)
}

// suspends writes a decided suspension.
func (f *gangField) suspends(c cluster.Cluster, n int, span interval.Span, class fairness.Class, culprits ...id.Lease) {
	f.t.Helper()
	ids := make([]pgtype.UUID, len(culprits))
	for i, l := range culprits {
		ids[i] = pgtype.UUID{Bytes: l.UUID(), Valid: true}
	}
	f.exec("INSERT INTO suspension (cluster_id, n, from_ms, to_ms, class, culprits) VALUES ($1, $2, $3, $4, $5, $6)", c.ID,
		1000+n, span.Start, span.End, string(class), ids)
}

// ago is a span of the past that no window of the test's cluster touches.
func ago(from, to time.Duration) interval.Span {
	now := time.Now().Add(-time.Hour).UnixMilli()
	return interval.Span{Start: now - from.Milliseconds(), End: now - to.Milliseconds()}
}

func (f *gangField) end(c cluster.Cluster) {
	f.t.Helper()
	_, err := f.clusters[0].Rentals.Release(f.ctx, f.renter, c.ID)
	f.must(err)
	f.clean(c)
}

// expense is what the platform has paid for relief.
func (f *gangField) expense() money.Nano { return -f.has(ledger.StandbyRelief(usd)) }

// A gang of hosts of two operators reserves a bond of each in the transaction of the rent, and gives it back once the
// cluster is settled. Without the bonds it is not placed, and the answer says why.
func TestAGangOfTwoOperatorsReservesBonds(t *testing.T) {
	t.Parallel()
	f := newGangField(t, 2, 0, nil)
	_, _, err := f.clusters[0].Rentals.Rent(f.ctx, f.renter, cluster.RentRequest{Spec: spec(2, 1)}, idem.Request{})
	if !fault.Is(err, fault.NoCapacity) || !strings.Contains(fmt.Sprint(fault.From(err).Extra["explain"]), "gang bond") {
		t.Fatalf("a gang without bonds: %v", err)
	}
	for _, o := range f.operators {
		f.move(ledger.StripeClearing(usd), ledger.HostBond(o.Org, usd), money.Unit)
	}
	var c cluster.Cluster
	for {
		if c, _, err = f.clusters[0].Rentals.Rent(f.ctx, f.renter, cluster.RentRequest{Spec: spec(2, 1)},
			idem.Request{}); !fault.Is(err,
			fault.NoCapacity) {
			break
		}
	}
	f.must(err)
	const liable = money.Nano(166_666_667) // 300 s at 2.00 per hour
	for _, l := range f.leases(c) {
		if l.Amount != liable || l.StandbyRate != price || f.has(ledger.BondHold(l.Operator, l.Lease, usd)) != liable ||
			f.has(ledger.HostBond(l.Operator, usd)) != money.Unit-liable {
			t.Errorf("%+v", l)
		}
	}
	f.rounds(c, "running", in(lifecycle.Running))
	f.end(c)
	for _, l := range f.leases(c) {
		if l.Open || f.has(ledger.HostBond(l.Operator, usd)) != money.Unit {
			t.Errorf("not released: %+v", l)
		}
	}
	live := func() (n int) {
		t.Helper()
		f.must(f.d.Pool.QueryRow(f.ctx, "SELECT count(*) FROM ledger_account WHERE kind = 'bond_hold' AND retired_at IS "+
			"NULL").Scan(&n))
		return n
	}
	if n := live(); n != 0 {
		t.Errorf("%d accounts of released bonds are still added up", n)
	}
	// Those that an earlier version released are retired by a job.
	f.exec("UPDATE ledger_account SET retired_at = NULL, created_at = created_at - interval '2 days' WHERE kind = " +
		"'bond_hold'")
	if n, err := ledger.RetireHolds(f.ctx, f.d); err != nil || n != 2 || live() != 0 {
		t.Errorf("%d retired, %d live: %v", n, live(), err)
	}
	var settled *time.Time
	f.must(f.d.Pool.QueryRow(f.ctx, "SELECT settled_at FROM cluster WHERE id = $1", c.ID).Scan(&settled))
	if settled == nil {
		t.Error("the cluster is not settled")
	}
}

// Security 1 and money 3: a host stands by for 30 s because another one fails. It is paid all of it, from the bond of
// the failing host; the renter pays nothing for it, and the platform keeps its fee on it.
func TestTheHonestHostIsPaidFromTheCulpritsBond(t *testing.T) {
	t.Parallel()
	f := newGangField(t, 2, money.Unit, nil)
	c := f.runUp(spec(2, 1))
	honest, culprit := f.leases(c)[0], f.leases(c)[1]
	span := ago(60*time.Second, 30*time.Second)
	f.signs(honest.Lease, span)
	f.suspends(c, 0, span, fairness.Proof, culprit.Lease)
	before, paid := f.has(ledger.HostPending(honest.Operator, usd)), f.has(ledger.Wallet(f.renter.Org, usd))+
		f.has(ledger.Hold(f.renter.Org, c.ID, usd))
	f.tick(c)
	f.tick(c)                            // again: nothing new
	const gross = money.Nano(16_666_666) // 30 s at 2.00 per hour
	host := money.Share(gross, 850_000)
	if got := f.has(ledger.HostPending(honest.Operator, usd)) - before; got != host {
		t.Errorf("the honest host got %s for it, want %s", got, host)
	}
	// The reserve is filled up again from the bond.
	if got := f.has(ledger.BondHold(culprit.Operator, culprit.Lease, usd)) +
		f.has(ledger.HostBond(culprit.Operator, usd)); got != money.Unit-gross {
		t.Errorf("the culprit's bond is %s, want %s", got, money.Unit-gross)
	}
	if got := f.has(ledger.Wallet(f.renter.Org, usd)) + f.has(ledger.Hold(f.renter.Org, c.ID, usd)); got != paid {
		t.Errorf("the renter paid %s for it", paid-got)
	}
	if f.expense() != 0 {
		t.Errorf("the platform paid %s", f.expense())
	}
	f.end(c)
	if got := f.has(ledger.HostBond(culprit.Operator, usd)); got != money.Unit-gross {
		t.Errorf("%s came back, want %s", got, money.Unit-gross)
	}
}

// A bond that is nearly used up cannot pay the others for waiting: the next doubt about its host is final at once.
func TestALowBondMakesTheNextDoubtFinal(t *testing.T) {
	t.Parallel()
	f := newGangField(t, 2, fairness.Bond([]fairness.Lease{{StandbyRate: price}, {
		Operator:    id.New[id.Org](),
		StandbyRate: price,
	}}, 1, fairness.BondTime), nil)
	c := f.runUp(spec(2, 1))
	f.ran(c, 16*time.Minute)
	f.must(f.hostOf(c, 0).sync(f.ctx, 0))
	f.must(f.hostOf(c, 1).sync(f.ctx, 0))
	l := f.leases(c)
	span := ago(250*time.Second, 50*time.Second)
	f.signs(l[0].Lease, span)
	f.suspends(c, 0, span, fairness.Proof, l[1].Lease)
	f.tick(c)
	if got := f.get(c); got.State != lifecycle.Running {
		t.Fatalf("a used up bond alone ended it: %s %s", got.State, got.Detail)
	}
	f.away(c, time.Minute, 0)
	f.tick(c)
	if got := f.get(c); got.State != lifecycle.Degraded {
		t.Fatalf("rank 0 has its bond: %s %s", got.State, got.Detail)
	}
	f.must(f.hostOf(c, 0).sync(f.ctx, 0))
	f.away(c, time.Minute, 1)
	f.tick(c)
	if got := f.get(c); got.State != lifecycle.Failed {
		t.Errorf("rank 1 has little left of its bond: %s %s", got.State, got.Detail)
	}
}

// A host that failed in three gangs within an hour is placed in no gang, and the answer says why.
func TestAHostThatFailedInThreeGangsIsInNoOther(t *testing.T) {
	t.Parallel()
	f := newGangField(t, 2, money.Unit, nil)
	c, _ := fleettest.Lease(t, f.d, f.hosts[0].id, f.renter.Org)
	f.exec(`INSERT INTO gang_strike (host_id, cluster_id, kind, at)
		SELECT $1, $2, 'loss', clock_timestamp() - n * interval '1 minute' FROM generate_series(1, 3) n`, f.hosts[0].id, c)
	_, _, err := f.clusters[0].Rentals.Rent(f.ctx, f.renter, cluster.RentRequest{Spec: spec(2, 1)}, idem.Request{})
	var ft *fault.Fault
	if !errors.As(err, &ft) || ft.Kind != fault.NoCapacity || !strings.Contains(fmt.Sprint(ft.Extra["explain"]),
		"gang ban") {
		t.Fatalf("a gang with a banned host: %v", err)
	}
	f.rent(spec(1, 1))
	f.rent(spec(1, 1)) // both hosts alone, as before
}

// Money 3 with no culprit: the platform adds at most the configured part of the fee that it took on the same cluster,
// and nothing where it took none (I4).
func TestI4ReliefIsNeverAboveThePartOfTheFee(t *testing.T) {
	t.Parallel()
	f := newGangField(t, 2, money.Unit, nil)
	c := f.runUp(spec(2, 1))
	l := f.leases(c)
	span := ago(90*time.Second, 30*time.Second)
	f.signs(l[0].Lease, span)
	f.suspends(c, 0, span, fairness.Undecided)
	f.tick(c)
	f.end(c)
	fee := f.has(ledger.Fee(usd))
	if f.expense() > fee/2 {
		t.Errorf("relief of %s on a fee of %s", f.expense(), fee)
	}
	if fee > 1 && f.expense() == 0 {
		t.Errorf("no relief on a fee of %s", fee)
	}
}

// I6: however long a host makes the others stand by, it never pays more than was reserved for it.
func TestI6ACulpritNeverPaysMoreThanItsBond(t *testing.T) {
	t.Parallel()
	const kept = money.Nano(170_000_000)
	f := newGangField(t, 2, kept, nil)
	c := f.runUp(spec(2, 1))
	honest, culprit := f.leases(c)[0], f.leases(c)[1]
	for n := range 4 {
		span := ago(time.Duration(1000-200*n)*time.Second, time.Duration(800-200*n)*time.Second)
		f.signs(honest.Lease, span)
		f.suspends(c, n, span, fairness.Silence, culprit.Lease)
		f.tick(c)
		var posted money.Nano
		f.must(f.d.Pool.QueryRow(f.ctx, "SELECT coalesce(sum(posted), 0) FROM standby WHERE culprit = $1",
			culprit.Lease).Scan(&posted))
		if posted > kept {
			t.Fatalf("after %d suspensions it paid %s of %s", n+1, posted, kept)
		}
	}
	var told int
	f.must(f.d.Pool.QueryRow(f.ctx, "SELECT count(*) FROM notice WHERE org_id = $1 AND dedupe_key LIKE 'bond_short:%'",
		culprit.Operator).Scan(&told))
	if told == 0 {
		t.Error("the operator was not told that its bond is used up")
	}
	low, err := bond.Low(f.ctx, f.d.Q, c.ID, culprit.Lease)
	f.must(err)
	if !low {
		t.Error("an empty reserve is not low")
	}
	f.end(c)
	if got := f.has(ledger.HostBond(culprit.Operator, usd)); got != 0 {
		t.Errorf("%s is left", got)
	}
}

// I3, I4, I10 and I13 with suspensions at random and the server killed at every statement: what is booked in the end is
// what the rule says of all facts, no nano-unit is made or lost, and a bond changes by its entries only.
func TestI3I10I13StandbySurvivesDeathsAtEveryStatement(t *testing.T) {
	t.Parallel()
	d, k := dbtest.NewMortal(t)
	f := newGangField(t, 3, money.Unit, d)
	c := f.runUp(spec(3, 1))
	l := f.leases(c)
	r := rand.New(rand.NewPCG(3, 13))
	signed := make([]interval.Set, 3)
	died := 0
	for n := range 30 {
		at := time.Duration(2000-60*n) * time.Second
		span := ago(at, at-time.Duration(1+r.IntN(40))*time.Second)
		for i := range l {
			if r.IntN(3) > 0 {
				f.signs(l[i].Lease, span)
				signed[i] = signed[i].Union(interval.Of(span))
			}
		}
		switch r.IntN(4) {
		case 0:
			f.suspends(c, n, span, fairness.Undecided)
		case 1:
			f.suspends(c, n, span, fairness.Proof, l[0].Lease, l[2].Lease)
		default:
			f.suspends(c, n, span, fairness.Proof, l[r.IntN(3)].Lease)
		}
		f.exec("UPDATE cluster SET due_at = clock_timestamp(), full_look_at = 'epoch' WHERE id = $1", c.ID)
		k.Left.Store(int64(5 + n))
		if res, err := f.clusters[0].Watchdog.Pass(f.ctx); err != nil || res.Failed > 0 {
			died++
		}
		k.Left.Store(0)
	}
	if died < 5 {
		t.Fatalf("died %d times: the killer does not kill", died)
	}
	f.end(c)
	f.ledger()
	var pending, fee, bonds money.Nano
	for i := range l {
		pending += f.has(ledger.HostPending(l[i].Operator, usd))
		bonds += f.has(ledger.HostBond(l[i].Operator, usd)) + f.has(ledger.BondHold(l[i].Operator, l[i].Lease, usd))
	}
	fee = f.has(ledger.Fee(usd))
	var usage, debits, relief money.Nano
	f.must(d.Pool.QueryRow(f.ctx, "SELECT sum(posted) FROM lease_meter").Scan(&usage))
	f.must(d.Pool.QueryRow(f.ctx, "SELECT coalesce(sum(posted), 0) FROM standby").Scan(&debits))
	f.must(d.Pool.QueryRow(f.ctx, "SELECT coalesce(sum(host_posted), 0) FROM standby_relief").Scan(&relief))
	if usage+debits+relief != pending+fee {
		t.Errorf("renters %s, bonds %s and relief %s are not hosts %s and fees %s", usage, debits, relief, pending, fee)
	}
	if bonds != 3*money.Unit-debits {
		t.Errorf("bonds are %s, want %s less %s", bonds, 3*money.Unit, debits)
	}
	if debits == 0 || f.expense() != relief {
		t.Errorf("debits %s, relief %s, expense %s", debits, relief, f.expense())
	}
	if relief > fee {
		t.Errorf("the platform paid %s and took %s", relief, fee) // I4: a coalition gains nothing
	}
	for i := range l { // I10
		var got money.Nano
		f.must(d.Pool.QueryRow(f.ctx, `SELECT coalesce((SELECT sum(posted) FROM standby WHERE victim = $1), 0)
			+ coalesce((SELECT host_posted FROM standby_relief WHERE victim = $1), 0)`, l[i].Lease).Scan(&got))
		if most := money.CostOf(price, signed[i].Len()); got > most {
			t.Errorf("rank %d got %s for time that costs %s", i, got, most)
		}
	}
}
