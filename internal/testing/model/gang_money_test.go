package model

import (
	"cmp"
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/musterhq/muster/internal/billing/bond"
	"github.com/musterhq/muster/internal/billing/fairness"
	"github.com/musterhq/muster/internal/billing/ledger"
	"github.com/musterhq/muster/internal/billing/metering"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/money"
	"github.com/musterhq/muster/internal/testing/dbtest"
)

// bookedGang is a random gang whose leases and bonds are in the database.
type bookedGang struct {
	gang
	cluster   id.Cluster
	operators map[int]id.Org
	leases    []bond.Frozen // by rank
}

// TestGangsAreBookedAsTheOracleSays books random gangs through the real ledger, as they go on: in steps, some of which
// are repeated, come again when they are out of date, or die before their commit. In the end bonds, hosts, fees and
// relief have what the oracle says, to the nano-unit.
func TestGangsAreBookedAsTheOracleSays(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t)
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 12))
	paid, relieved := money.Nano(0), money.Nano(0)
	for i := range 40 {
		b := newBookedGang(t, d, rnd)
		fees, relief := balance(t, d, ledger.Fee(eur)), balance(t, d, ledger.StandbyRelief(eur))
		b.post(t, d, rnd)
		want := b.judge()
		b.check(t, d, i, want)
		fee := balance(t, d, ledger.Fee(eur)) - fees
		if got := balance(t, d, ledger.StandbyRelief(eur)) - relief; max(got, -got) != money.Nano(want.relief) {
			t.Fatalf("gang %d: relief of %s, want %s", i, got, money.Nano(want.relief))
		}
		if want := money.Nano(want.fees - want.usageFee); fee != want {
			t.Fatalf("gang %d: fees on standby of %s, want %s", i, fee, want)
		}
		for _, n := range want.debit {
			paid += money.Nano(n)
		}
		relieved += money.Nano(want.relief)
	}
	mustBalance(t, d)
	if paid == 0 || relieved == 0 {
		t.Fatalf("%s was paid from bonds and %s from relief: the test proves nothing", paid, relieved)
	}
}

// newBookedGang writes a random gang's leases, fills its operators' bonds and reserves them.
func newBookedGang(t *testing.T, d *db.DB, rnd *rand.Rand) *bookedGang {
	t.Helper()
	g, _ := randomGang(rnd)
	g.fee, g.forUndecided, g.forAll = nil, fairness.DefaultRelief.UndecidedPPM, fairness.DefaultRelief.TotalPPM
	b := &bookedGang{gang: g, cluster: id.New[id.Cluster](), operators: map[int]id.Org{}}
	stakes := bond.Stakes{Currency: eur}
	var leases []metering.NewLease
	bonds := map[id.Org]money.Nano{}
	renter := newOrg(t, d)
	for rank, r := range g.ranks {
		if _, ok := b.operators[r.operator]; !ok {
			b.operators[r.operator] = newOrg(t, d)
		}
		op, host := b.operators[r.operator], id.New[id.Host]()
		run(t, d, "INSERT INTO host (id, org_id, name, region, state) VALUES ($1, $2, $3, 'eu', 'active')", host, op,
			host.String())
		l := metering.NewLease{
			ID:           id.New[id.Lease](),
			Cluster:      b.cluster,
			Node:         id.New[id.Node](),
			Rank:         rank,
			Host:         host,
			Renter:       renter,
			Operator:     op,
			GPUModel:     "H100",
			GPUs:         []id.GPU{id.New[id.GPU]()},
			Currency:     eur,
			HostSharePPM: r.ppm,
			Epoch:        1,
			Rate:         money.Micro(r.rate),
		}
		leases = append(leases, l)
		stakes.Leases = append(stakes.Leases, bond.Stake{
			Lease:       l.ID,
			Cluster:     b.cluster,
			Host:        host,
			Operator:    op,
			StandbyRate: money.Micro(r.standby),
			Amount:      money.Nano(r.bond),
		})
		bonds[op] += money.Nano(r.bond)
	}
	inTx(t, d, func(ctx context.Context, tx *db.Tx) error {
		if err := create(ctx, tx, leases); err != nil {
			return err
		}
		for op, n := range bonds {
			if n == 0 {
				continue
			}
			_, err := ledger.PostAll(ctx, tx, []ledger.Entry{
				{
					Kind:      "topup",
					Key:       "topup:" + op.String(),
					Transfers: []ledger.Transfer{{Debit: ledger.StripeClearing(eur), Credit: ledger.Wallet(op, eur), Amount: n}},
				},
				{
					Kind:      "bond_deposit",
					Key:       "deposit:" + op.String(),
					Transfers: []ledger.Transfer{{Debit: ledger.Wallet(op, eur), Credit: ledger.HostBond(op, eur), Amount: n}},
				},
			})
			if err != nil {
				return err
			}
		}
		books, err := ledger.Lock(ctx, tx, stakes.Accounts()...)
		if err != nil {
			return err
		}
		batch := &pgx.Batch{}
		if err := cmp.Or(stakes.QueueWrite(batch, books), tx.Send(ctx, batch)); err != nil {
			return err
		}
		b.leases, err = bond.OfCluster(ctx, tx.Q, b.cluster)
		return err
	})
	slices.SortFunc(b.leases, func(x, y bond.Frozen) int { return cmp.Compare(x.Rank, y.Rank) })
	return b
}

// post books the gang as its time goes on.
func (b *bookedGang) post(t *testing.T, d *db.DB, rnd *rand.Rand) {
	t.Helper()
	var dues []fairness.Money
	book := func(due fairness.Money, dies bool) {
		lost := errors.New("the connection was lost")
		err := d.InTx(context.Background(), func(ctx context.Context, tx *db.Tx) error {
			err := bond.Post(ctx, tx, b.cluster, b.leases, due)
			if err == nil && dies {
				err = lost
			}
			return err
		})
		if err != nil && (!dies || !errors.Is(err, lost)) {
			t.Fatal(err)
		}
	}
	for until := 1 + rnd.IntN(b.ticks); ; until = min(b.ticks, until+1+rnd.IntN(20)) {
		g := b.clone()
		g.ticks = until
		dues = append(dues, fairness.Pay(g.terms(b.leases), g.runs(rnd), money.Nano(g.judge().usageFee), g.caps()))
		for range 1 + rnd.IntN(2) {
			book(dues[len(dues)-1], rnd.IntN(4) == 0)
			book(dues[rnd.IntN(len(dues))], false) // perhaps one that is out of date
		}
		if until == b.ticks {
			break
		}
	}
	book(dues[len(dues)-1], false)
}

// terms are the terms of the leases as the database has frozen them.
func (g gang) terms(frozen []bond.Frozen) []fairness.Lease {
	out := make([]fairness.Lease, len(frozen))
	for k, l := range frozen {
		out[k] = fairness.Lease{
			Operator:    l.Operator,
			Rate:        money.Micro(g.ranks[k].rate),
			StandbyRate: l.StandbyRate,
			SharePPM:    l.SharePPM,
			Bond:        l.Reserved,
		}
	}
	return out
}

// check compares what bonds and hosts have with the oracle.
func (b *bookedGang) check(t *testing.T, d *db.DB, i int, want gangVerdict) {
	t.Helper()
	earned := map[int]money.Nano{}
	for k, r := range b.ranks {
		if got := balance(t, d, ledger.BondHold(b.operators[r.operator], b.leases[k].Lease,
			eur)); got != money.Nano(r.bond-want.debit[k]) {
			t.Fatalf("gang %d: %s is left of the bond of rank %d, want %s", i, got, k, money.Nano(r.bond-want.debit[k]))
		}
		earned[r.operator] += money.Nano(want.undecided[k].paid + want.platform[k].paid)
	}
	for pair, debt := range want.owed {
		v := b.ranks[pair[0]]
		earned[v.operator] += money.Nano(millionths(debt.paid, v.ppm))
	}
	for op, n := range earned {
		if got := balance(t, d, ledger.HostPending(b.operators[op], eur)); got != n {
			t.Fatalf("gang %d: operator %d has earned %s, want %s", i, op, got, n)
		}
	}
}

func balance(t *testing.T, d *db.DB, a ledger.Account) money.Nano {
	t.Helper()
	n, err := ledger.Balance(context.Background(), d.Q, a)
	if err != nil {
		t.Fatal(err)
	}
	return n
}
