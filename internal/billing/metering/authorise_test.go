package metering

import (
	"context"
	"math/big"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/musterhq/muster/internal/billing/ledger"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/money"
)

func TestStep(t *testing.T) {
	t.Parallel()
	const now, min, hour = int64(base), int64(60_000), int64(3_600_000)
	for name, c := range map[string]struct{ present, reach, target, want int64 }{
		"start":                    {0, now + hour, now + hour, now + hour},
		"enough left":              {now + 31*min, now + hour, now + hour, now + 31*min},
		"extend":                   {now + 29*min, now + hour, now + hour, now + hour},
		"short: small steps":       {now + 4*min, now + 40*min, now + hour, now + 10*min},
		"short: enough left":       {now + 6*min, now + 40*min, now + hour, now + 6*min},
		"short: the last bit":      {now + 4*min, now + 5*min, now + hour, now + 5*min},
		"nothing more":             {now + 4*min, now + 3*min, now + hour, now + 4*min},
		"max_duration is near":     {now + 4*min, now + 7*min, now + 7*min, now + 7*min},
		"max_duration has passed":  {now + 4*min, now - min, now - min, now + 4*min},
		"start with little":        {0, now + 70_000, now + hour, now + 70_000},
		"start, not even the past": {0, now - 1, now + hour, 0},
		"lapsed, and too poor":     {now - min, now - 1, now + hour, now - min},
	} {
		if got := step(now, c.present, c.reach, c.target); got != c.want {
			t.Errorf("%s: now%+d, want now%+d", name, got-now, c.want-now)
		}
	}
}

// affordable is the last millisecond that fits: one more does not.
func TestAffordable_Tight(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(3, 4))
	for range 2000 {
		var leases []*lease
		for range 1 + r.IntN(4) {
			h := randomHistory(r)
			h.terms.Life = Interval{Start: base - 10_000, End: forever}
			m, _ := Charge(Meter{Numerator: new(big.Int)}, h.segments, h.windows, h.terms)
			leases = append(leases, &lease{meter: m, windows: h.windows, terms: h.terms})
		}
		now := int64(base) + 20*3_600_000
		total, posted := worst(leases, now, now+r.Int64N(3_600_000))
		funds := total - posted + money.Nano(r.Int64N(1000))
		var budget *money.Nano
		if r.IntN(2) == 0 {
			b := total + money.Nano(r.Int64N(1_000_000)-500_000)
			budget = &b
		}
		until, short := affordable(leases, now, now+3_600_000, spendable{funds: funds, budget: budget})
		fits := func(t int64) bool {
			total, posted := worst(leases, now, t)
			return total-posted <= funds && (budget == nil || total <= *budget)
		}
		if until >= now && !fits(until) {
			t.Fatalf("until now%+d does not fit", until-now)
		}
		if (short == LimitNone) != (until == now+3_600_000) || short != LimitNone && fits(until+1) {
			t.Fatalf("until now%+d, %q, but one more fits: %v", until-now, short, fits(until+1))
		}
	}
}

func TestAuthorise_AsFarAsMoneyReaches(t *testing.T) {
	t.Parallel()
	d := newDB(t)
	nano := func(n money.Nano) *money.Nano { return &n }
	for name, c := range map[string]struct {
		funds  money.Nano
		budget *money.Nano
		ms     int64 // authorised ahead
		limit  Limit
		kind   fault.Kind
	}{
		"plenty":            {funds: 10 * money.Unit, ms: 3_600_000},
		"exactly an hour":   {funds: money.Unit, ms: 3_600_000},
		"short of an hour":  {funds: money.Unit - 1, ms: 600_000, limit: LimitFunds},
		"a minute":          {funds: money.CostOf(1_000_000, 60_000) + 1, ms: 60_000, limit: LimitFunds},
		"not a minute":      {funds: money.CostOf(1_000_000, 59_000), kind: fault.InsufficientFunds},
		"nothing":           {kind: fault.InsufficientFunds},
		"budget":            {funds: 10 * money.Unit, budget: nano(money.Unit / 20), ms: 180_000, limit: LimitBudget},
		"budget too small":  {funds: 10 * money.Unit, budget: nano(money.Unit / 100), kind: fault.Invalid},
		"budget and wallet": {funds: money.Unit / 30, budget: nano(money.Unit / 20), ms: 120_000, limit: LimitFunds},
	} {
		w := newWorld(t, d, c.funds, 1_000_000)
		a, err := w.authorise(c.budget)
		if fault.KindOf(err) != c.kind {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if err != nil {
			mustEqual(t, name, w.money().Hold, 0)
			continue
		}
		ahead, passed := a.RunUntil.UnixMilli()-w.now, time.Now().UnixMilli()-w.now
		if a.Limit != c.limit || ahead < c.ms || ahead > c.ms+passed+1_000 || a.Held != w.money().Hold {
			t.Errorf("%s: %d ms, %q, held %s", name, ahead, a.Limit, a.Held)
		}
		w.ledgerBalances()
	}
}

func TestAuthorise_KeepsLatestEnd(t *testing.T) {
	t.Parallel()
	w := newWorld(t, newDB(t), 10*money.Unit, 1_000_000)
	end := at(w.now + 900_000)
	w.Tx(func(ctx context.Context, tx *db.Tx) error {
		a, err := Authorise(ctx, tx, AuthoriseRequest{Cluster: w.cluster, Org: w.renter, Currency: eur, NotAfter: &end})
		if err == nil && (!a.RunUntil.Equal(end) || a.Limit != LimitDuration) {
			t.Errorf("%+v", a)
		}
		return err
	})
	var until time.Time
	if err := w.DB.Pool.QueryRow(t.Context(), "SELECT run_until FROM lease WHERE id = $1",
		w.leases[0]).Scan(&until); err != nil || !until.Equal(end) {
		t.Fatal(until, err)
	}
	w.end(w.now)
	if _, err := w.authorise(nil); !fault.Is(err, fault.Conflict) {
		t.Fatal(err)
	}
}

// A lease that joins running ones is covered as far as they are, at once.
func TestAuthorise_JoiningLease(t *testing.T) {
	t.Parallel()
	w := newWorld(t, newDB(t), 3*money.Unit, 1_000_000)
	first := w.mustAuthorise()
	w.addLeases(1_000_000)
	second := w.mustAuthorise()
	if second.RunUntil.Before(first.RunUntil) || second.Held < 2*money.Unit-money.Unit/100 {
		t.Fatalf("%+v after %+v", second, first)
	}
	w.addLeases(1_500_000) // not affordable that far
	if _, err := w.authorise(nil); !fault.Is(err, fault.InsufficientFunds) {
		t.Fatal(err)
	}
}

// Whatever happens up to run_until and beyond, the charge stays within the hold, and the wallet is not touched.
func TestAuthorise_NoOvershoot(t *testing.T) {
	t.Parallel()
	d := newDB(t)
	for _, funds := range []money.Nano{money.Unit / 50, money.Unit / 3, money.Unit} {
		w := newWorld(t, d, funds, 333_333, 444_447)
		a := w.mustAuthorise()
		w.age(time.Hour)
		ahead := a.RunUntil.UnixMilli() - 3_600_000
		start := w.now - 3_600_000
		w.window(start-60_000, w.now, w.now) // opened early, confirmed and closed past run_until
		for _, l := range w.leases {
			w.ingest(w.segments(l, 1, start, min(w.now, ahead+120_000), true)...)
		}
		m := w.money()
		if spent := money.CostOf(333_333, ahead-start) + money.CostOf(444_447, ahead-start); m.Host > spent || m.Hold < 0 {
			t.Fatalf("funds %s: %+v, at most %s can be spent", funds, m, spent)
		}
		mustEqual(t, "wallet", m.Wallet, funds-a.Held)
		w.end(w.now)
		mustEqual(t, "done", w.settle(), true)
		mustEqual(t, "left", w.money().Hold, 0)
		w.ledgerBalances()
	}
}

// Clusters that compete for one wallet never hold more than it had.
func TestAuthorise_ConcurrentOnOneWallet(t *testing.T) {
	t.Parallel()
	d := newDB(t)
	rich := newWorld(t, d, 5*money.Unit/2, 1_000_000)
	clusters := []*world{rich}
	for range 5 {
		c := *rich
		c.leases = nil
		c.cluster = newWorld(t, d, 0).cluster
		c.addLeases(1_000_000)
		clusters = append(clusters, &c)
	}
	var wg sync.WaitGroup
	for _, c := range clusters {
		wg.Go(func() {
			if _, err := c.authorise(nil); err != nil && !fault.Is(err, fault.InsufficientFunds) {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	b, err := ledger.OrgBalances(t.Context(), d.Q, rich.renter, eur)
	if err != nil || b.Available < 0 || b.Available+b.Held != 5*money.Unit/2 || b.Held < 2*money.Unit {
		t.Fatal(b, err)
	}
	rich.ledgerBalances()
}

func TestCosts_SpendingNow(t *testing.T) {
	t.Parallel()
	w, t0 := open(t, newDB(t), 3_600_000, 1_000_000)
	w.ingest(w.segment(w.leases[0], 1, t0, t0+300_000, false))
	r, err := OrgRunning(t.Context(), w.DB.Q, w.renter)
	if err != nil {
		t.Fatal(err)
	}
	mustEqual(t, "burn", r.Burn, 4_600_000)
	// The time that is proven and waits to be booked is as good as spent.
	low := money.CostOf(3_600_000, 3_000_000) + money.CostOf(1_000_000, 3_000_000)
	if r.Accrued < low || r.Accrued > low+money.CostOf(4_600_000, 20_000) {
		t.Fatalf("accrued %s, want about %s", r.Accrued, low)
	}
	all, err := AllRunning(t.Context(), w.DB.Q)
	if err != nil || all.Burn != r.Burn || all.Accrued < r.Accrued { // they are the only ones
		t.Fatal(all, err)
	}
}
