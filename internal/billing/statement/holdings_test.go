package statement_test

import (
	"math/big"
	"testing"
	"time"

	"github.com/musterhq/muster/internal/billing/ledger"
	"github.com/musterhq/muster/internal/billing/statement"
)

// Every account belongs to someone: whatever the ledger holds, the money and its owners' claims are equal.
func TestHoldings_BothSidesEqual(t *testing.T) {
	t.Parallel()
	r := newRental(t)
	r.open(t)
	r.prove(t, 0, 2_000, ranMS)
	r.prove(t, 1, 1_500, ranMS-4_200)
	r.end(t)
	books, err := ledger.Check(t.Context(), r.DB)
	if err != nil {
		t.Fatal(err)
	}
	assets, claims := statement.Holdings(books.Totals, "EUR")
	sums, of := [2]*big.Int{new(big.Int), new(big.Int)}, map[statement.Part]*big.Int{}
	for i, side := range [][]statement.Holding{assets, claims} {
		for _, h := range side {
			sums[i].Add(sums[i], h.Amount)
			of[h.Part] = h.Amount
		}
	}
	if sums[0].Cmp(sums[1]) != 0 || sums[0].Sign() <= 0 {
		t.Errorf("there is %s, and %s of it is somebody's", sums[0], sums[1])
	}
	for part, account := range map[statement.Part]ledger.Account{
		statement.OperatorsYoung: ledger.HostPending(r.operator, "EUR"),
		statement.Platform:       ledger.Fee("EUR"),
	} {
		n, err := ledger.Balance(t.Context(), r.DB.Q, account)
		if err != nil {
			t.Fatal(err)
		}
		if n == 0 || of[part].Cmp(big.NewInt(int64(n))) != 0 {
			t.Errorf("%s: %s, the books say %s", part, of[part], n)
		}
	}
	if assets, claims = statement.Holdings(books.Totals, "USD"); len(assets) == 0 || assets[0].Amount.Sign() != 0 ||
		claims[0].Amount.Sign() != 0 {
		t.Errorf("of another currency: %v %v", assets, claims)
	}
}

// A trial balance is cached for its stated time, with the moment it is from, and no longer.
func TestTrialBalance_Age(t *testing.T) {
	t.Parallel()
	r := newRental(t)
	now := time.Date(2026, 11, 22, 10, 0, 0, 0, time.UTC)
	reads := statement.New(r.DB, "EUR", statement.Party{})
	kept, always := reads.NewTrial(time.Minute, func() time.Time { return now }),
		reads.NewTrial(0, func() time.Time { return now })
	held := func(trial *statement.Trial, want time.Time) *big.Int {
		t.Helper()
		b, at, err := trial.Read(t.Context())
		if err != nil || !at.Equal(want) {
			t.Fatal(at, err)
		}
		_, claims := statement.Holdings(b.Totals, "EUR")
		for _, h := range claims {
			if h.Part == statement.OperatorsYoung {
				return h.Amount
			}
		}
		return nil
	}
	first := now
	if held(kept, first).Sign() != 0 {
		t.Fatal("something was earned already")
	}
	r.open(t)
	r.prove(t, 0, 2_000, ranMS)
	r.prove(t, 1, 1_500, ranMS-4_200)
	r.end(t)
	now = now.Add(59 * time.Second)
	if held(kept, first).Sign() != 0 || held(always, now).Sign() <= 0 {
		t.Error("it is not kept, or kept where it should not be")
	}
	now = now.Add(time.Second)
	if held(kept, now).Sign() <= 0 {
		t.Error("it is kept too long")
	}
	now = now.Add(-time.Hour) // a clock that was set back
	held(kept, now)
}
