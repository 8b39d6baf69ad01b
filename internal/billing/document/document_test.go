package document_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/musterhq/muster/internal/billing/document"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/testing/billingtest"
	"github.com/musterhq/muster/internal/testing/dbtest"
)

func sound(t testing.TB, d *db.DB, want map[document.Series]int64) {
	t.Helper()
	checks, err := document.CheckAll(t.Context(), d.Q)
	if err != nil {
		t.Fatal(err)
	}
	got := map[document.Series]int64{}
	for _, c := range checks {
		if c.Problem != "" {
			t.Errorf("%s %d: %s", c.Series, c.Year, c.Problem)
		}
		got[c.Series] += c.Issued
	}
	for s, n := range want {
		if got[s] != n {
			t.Errorf("%s: %d documents, want %d", s, got[s], n)
		}
	}
}

// Transactions that issue documents of several series at once, some of which roll back, leave no gap and no duplicate.
func TestNumbers_NoGaps(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t)
	org := billingtest.New(t, d).Org()
	all := []document.Series{document.Receipt, document.CreditNote, document.SelfBilling}
	var made [3]atomic.Int64
	var work sync.WaitGroup
	for w := range 8 {
		work.Go(func() {
			r := rand.New(rand.NewPCG(uint64(w), 1))
			for i := range 25 {
				fails := r.IntN(3) == 0
				some := r.Perm(len(all))[:1+r.IntN(len(all))]
				err := d.InTx(t.Context(), func(ctx context.Context, tx *db.Tx) error {
					for _, s := range some {
						if err := document.Issue(ctx, tx, document.Draft{
							Series:  all[s],
							Org:     org,
							Key:     fmt.Sprint(w, i, s),
							Content: i,
						}); err != nil {
							return err
						}
					}
					if fails {
						return errors.New("rolled back")
					}
					return nil
				})
				if fails != (err != nil) {
					t.Error(fails, err)
				}
				if err == nil {
					for _, s := range some {
						made[s].Add(1)
					}
				}
			}
		})
	}
	work.Wait()
	want := map[document.Series]int64{}
	for s, series := range all {
		want[series] = made[s].Load()
	}
	sound(t, d, want)
}

// The check reads the documents since the last that was found in order. A gap or a disorder among them stays in sight;
// one among those before is found when their turn comes, and reported until it is gone.
func TestNumbers_CheckReadsOnFromWhereItWas(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t)
	org := billingtest.New(t, d).Org()
	exec := func(sql string) {
		t.Helper()
		if _, err := d.Pool.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	asOwner := func(sql string) {
		t.Helper()
		exec("SET session_replication_role = replica; " + sql + "; SET session_replication_role = origin")
	}
	issued := 0
	issue := func(n int) {
		t.Helper()
		for range n {
			issued++
			if err := d.InTx(t.Context(), func(ctx context.Context, tx *db.Tx) error {
				return document.Issue(ctx, tx, document.Draft{Series: document.Receipt, Org: org, Key: fmt.Sprint(issued)})
			}); err != nil {
				t.Fatal(err)
			}
		}
	}
	advance := func(want int) {
		t.Helper()
		if n, err := document.Advance(t.Context(), d); err != nil || n != want {
			t.Fatalf("%d series advanced: %v", n, err)
		}
	}
	problem := func() string {
		t.Helper()
		all, err := document.CheckAll(t.Context(), d.Q)
		if err != nil || len(all) != 1 {
			t.Fatal(all, err)
		}
		return all[0].Problem
	}
	recheck := func() error {
		exec("UPDATE document_checked SET checked_at = checked_at - interval '2 days'")
		n, err := document.Recheck(t.Context(), d)
		if n != 1 {
			t.Fatalf("%d series were read again", n)
		}
		return err
	}
	issue(5)
	advance(1)
	issue(3)
	sound(t, d, map[document.Series]int64{document.Receipt: 8})
	asOwner("UPDATE document SET number = 100 WHERE number = 7")
	if problem() == "" {
		t.Error("a gap is not found")
	}
	advance(0)
	asOwner("UPDATE document SET number = 7 WHERE number = 100; " +
		"UPDATE document SET issued_at = issued_at - interval '1 hour' WHERE number = 6")
	if problem() == "" {
		t.Error("a disorder after what was read before is not found")
	}
	advance(0)
	asOwner("UPDATE document SET issued_at = issued_at + interval '1 hour' WHERE number = 6")
	advance(1)
	if err := recheck(); err != nil {
		t.Fatal(err)
	}
	asOwner("UPDATE document SET number = 100 WHERE number = 2")
	if err := recheck(); err == nil || problem() == "" {
		t.Fatalf("a gap among what was read before: %v, %q", err, problem())
	}
	asOwner("UPDATE document SET number = 2 WHERE number = 100")
	if err := recheck(); err != nil {
		t.Fatal(err)
	}
	sound(t, d, map[document.Series]int64{document.Receipt: 8})
	if _, err := d.Pool.Exec(t.Context(), "UPDATE document_checked SET through = 1"); err == nil {
		t.Fatal("what was read can be forgotten")
	}
}

// Wherever a server dies while it issues, the next one goes on with the next number.
func TestNumbers_KilledTransactions(t *testing.T) {
	t.Parallel()
	d, k := dbtest.NewMortal(t)
	org := billingtest.New(t, d).Org()
	issued := int64(0)
	for at := int64(1); ; at++ {
		key := fmt.Sprint("killed at ", at)
		k.Left.Store(at)
		err := d.InTx(t.Context(), func(ctx context.Context, tx *db.Tx) error {
			return document.Issue(ctx, tx, document.Draft{Series: document.Receipt, Org: org, Key: key})
		})
		lived := k.Left.Load() > 0
		k.Left.Store(0)
		if _, found, ferr := document.Find(t.Context(), d.Q, key); ferr != nil || found != (err == nil) {
			t.Fatalf("killed at %d: found %v, %v %v", at, found, err, ferr)
		}
		if err == nil {
			issued++
		}
		if lived {
			break
		}
		if at > 50 {
			t.Fatal("it never lives")
		}
	}
	sound(t, d, map[document.Series]int64{document.Receipt: issued})
}

// A transaction that has issued a document and does not end holds up no other: the series is locked by the commit only.
func TestNumbers_SeriesLockedAtCommitOnly(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t)
	org := billingtest.New(t, d).Org()
	issue := func(key string, meanwhile func() error) error {
		return d.InTx(t.Context(), func(ctx context.Context, tx *db.Tx) error {
			if err := document.Issue(ctx, tx, document.Draft{Series: document.Receipt, Org: org, Key: key}); err != nil {
				return err
			}
			return meanwhile()
		})
	}
	none := func() error { return nil }
	done := make(chan error)
	if err := issue("slow", func() error {
		go func() { done <- issue("quick", none) }()
		select {
		case err := <-done:
			return err
		case <-time.After(time.Minute):
			return errors.New("the quick one waits for the slow one")
		}
	}); err != nil {
		t.Fatal(err)
	}
	for key, number := range map[string]string{"quick": "-000001", "slow": "-000002"} {
		if x, _, err := document.Find(t.Context(), d.Q, key); err != nil || !strings.HasSuffix(x.Number, number) {
			t.Error(key, x.Number, err)
		}
	}
	sound(t, d, nil)
}

// Documents and the counters of their series cannot be changed by anyone.
func TestDocument_Immutable(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t)
	org := billingtest.New(t, d).Org()
	if err := d.InTx(t.Context(), func(ctx context.Context, tx *db.Tx) error {
		return document.Issue(ctx, tx, document.Draft{
			Series:  document.CreditNote,
			Org:     org,
			Key:     "a",
			Content: map[string]string{"a": "b"},
		})
	}); err != nil {
		t.Fatal(err)
	}
	for _, sql := range []string{
		"UPDATE document SET number = 7", "UPDATE document SET content = '{}'",
		"UPDATE document SET issued_at = clock_timestamp()", "DELETE FROM document", "TRUNCATE document",
		"UPDATE document_number SET next = 9", "DELETE FROM document_number", "TRUNCATE document_number",
		"INSERT INTO document_number (series, year, next, last_at) VALUES ('receipt', 2020, 5, clock_timestamp())",
	} {
		if _, err := d.Pool.Exec(t.Context(), sql); err == nil {
			t.Errorf("%s was done", sql)
		}
	}
	x, found, err := document.Find(t.Context(), d.Q, "a")
	if err != nil || !found {
		t.Fatal(found, err)
	}
	if got, err := document.Get(t.Context(), d.Q, org, document.CreditNote, x.Number); err != nil || got.Key != "a" {
		t.Error(got, err)
	}
	for _, bad := range []string{"", "C", "C-x-1", x.Number + "0", "R" + x.Number[1:],
		strings.Replace(x.Number, "-0", "-", 1)} {
		if _, err := document.Get(t.Context(), d.Q, org, document.CreditNote, bad); fault.KindOf(err) != fault.NotFound {
			t.Error(bad, err)
		}
	}
	if _, err := document.Get(t.Context(), d.Q, id.New[id.Org](), document.CreditNote,
		x.Number); fault.KindOf(err) != fault.NotFound {
		t.Error("another org reads it", err)
	}
}
