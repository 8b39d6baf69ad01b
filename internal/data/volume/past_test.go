package volume

import (
	"context"
	"testing"
	"time"

	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/money"
)

// stored returns a world with a volume that has a snapshot, which nothing has mounted any more.
func stored(t *testing.T) (*world, Volume, id.DataDomain) {
	t.Helper()
	w := newWorld(t, Config{PricePerGBHour: 68_493_000})
	vol := w.create("data")
	cl, lease, err := w.rent(w.hosts[0], agentapi.MountRW, vol.ID)
	w.Must(err)
	a := w.agent(w.hosts[0], lease, vol.ID)
	w.Must(a.open(agentapi.MountRW))
	_, err = a.snapshot(map[string][]byte{"f": noise(100_000)})
	w.Must(err)
	w.release(cl)
	var domain id.DataDomain
	w.Must(w.d.Pool.QueryRow(t.Context(), "SELECT domain_id FROM volume WHERE id = $1", vol.ID).Scan(&domain))
	// As if it had been stored for 30 days.
	w.elapse(30 * 24 * time.Hour)
	return w, vol, domain
}

// due says whether the only meter is due by a moment, and leaves it as it was.
func (w *world) due(by time.Time) bool {
	w.t.Helper()
	var due bool
	w.Must(w.d.Pool.QueryRow(w.t.Context(), "SELECT count(*) > 0 FROM data_meter WHERE next_at <= $1", by).Scan(&due))
	return due
}

// sweepable says how many domains the next sweep visits.
func (w *world) sweepable() int {
	w.t.Helper()
	ids, err := w.d.Q.SweepableDomains(w.t.Context(), id.First[id.DataDomain]())
	w.Must(err)
	return len(ids)
}

// An erased domain is swept until the store has nothing of it, and metered until what it owes is posted.
func TestAnErasedDomainIsLeftAlone(t *testing.T) {
	t.Parallel()
	w, vol, domain := stored(t)
	w.Fund(w.who.Org, 10*money.Unit)
	w.Must(w.v.Catalog.Delete(t.Context(), w.who, vol.ID))
	_, err := w.v.Collector.Sweep(t.Context())
	w.Must(err)
	if n := w.sweepable(); n != 1 {
		t.Fatalf("%d domains are swept while the store has a pack", n)
	}
	w.Exec("UPDATE data_pack SET doomed_at = doomed_at - interval '30 days', url_until = url_until - interval '30 days'")
	if n, err := w.v.Collector.Sweep(t.Context()); n != 1 || err != nil {
		t.Fatalf("%d packs deleted: %v", n, err)
	}
	if n := w.sweepable(); n != 1 {
		t.Fatalf("%d domains are swept before one sweep has found nothing", n)
	}
	_, err = w.v.Collector.Sweep(t.Context())
	w.Must(err)
	if n := w.sweepable(); n != 0 {
		t.Fatalf("%d domains are swept after all is gone", n)
	}
	later := time.Now().Add(2 * ChargeEvery)
	if n, err := w.v.Meters.chargeDue(t.Context(), later); n != 0 || err != nil { // the deletion has charged it
		t.Fatalf("%d charged: %v", n, err)
	}
	var posted int64
	w.Must(w.d.Pool.QueryRow(t.Context(), "SELECT posted FROM data_meter WHERE domain_id = $1", domain).Scan(&posted))
	if posted < 4_900_000 {
		t.Fatalf("%d posted for 30 days", posted)
	}
	if w.due(later.AddDate(100, 0, 0)) {
		t.Fatal("the meter is due again")
	}
}

// What an erased domain owes is tried once a day, also in vain, and written off after a year.
func TestTheDebtOfAnErasedDomainEnds(t *testing.T) {
	t.Parallel()
	w, vol, _ := stored(t)
	w.Must(w.v.Catalog.Delete(t.Context(), w.who, vol.ID))
	charge := func(by time.Time) {
		t.Helper()
		if n, err := w.v.Meters.chargeDue(t.Context(), by); n != 1 || err != nil {
			t.Fatalf("%d charged: %v", n, err)
		}
	}
	if by := time.Now(); w.due(by.Add(retryErased-time.Minute)) || !w.due(by.Add(retryErased+time.Minute)) {
		t.Fatal("the meter is not due in a day")
	}
	if s, err := w.v.Hosts.packs.limiter.standing(t.Context(), w.d.Q, w.who.Org); s.unpaidSince == nil || err != nil {
		t.Fatalf("paid, although there is no credit: %v", err)
	}
	w.Exec("UPDATE data_domain SET erased_at = erased_at - $1::interval", erasedDebt.String())
	charge(time.Now().Add(2 * retryErased))
	if w.due(time.Now().AddDate(100, 0, 0)) {
		t.Fatal("the meter is due after a year")
	}
	if s, err := w.v.Hosts.packs.limiter.standing(t.Context(), w.d.Q, w.who.Org); s.unpaidSince != nil || err != nil {
		t.Fatalf("unpaid after a year: %v", err)
	}
}

// A meter that cannot be charged waits behind the others.
func TestAMeterThatFailsWaitsBehindTheOthers(t *testing.T) {
	t.Parallel()
	w, _, _ := stored(t)
	w.Fund(w.who.Org, 10*money.Unit)
	w.Exec("UPDATE data_meter SET through_at = 'infinity'") // which no time.Time holds
	if n, err := w.v.Meters.chargeDue(t.Context(), time.Now().Add(2*ChargeEvery)); n != 0 || err == nil {
		t.Fatalf("%d charged: %v", n, err)
	}
	if w.due(time.Now().Add(time.Minute)) {
		t.Fatal("it is due again at once")
	}
	if !w.due(time.Now().Add(time.Hour)) {
		t.Fatal("it is not tried again")
	}
}

// What jobs and grants read does not grow with the domains that are gone.
func TestGoneDomainsAreNotRead(t *testing.T) {
	t.Parallel()
	w, _, _ := stored(t)
	w.Exec(`WITH d AS (INSERT INTO data_domain (id, org_id, next_pack, erased_at, emptied_at)
			SELECT gen_random_uuid(), $1, 9, clock_timestamp(), clock_timestamp() FROM generate_series(1, 3000) RETURNING id)
		INSERT INTO data_meter (domain_id, through_at, next_at) SELECT id, clock_timestamp(), NULL FROM d`, w.who.Org)
	w.Exec("ANALYZE data_domain, data_meter")
	by := time.Now().Add(2 * ChargeEvery)
	for name, f := range map[string]func(ctx context.Context, tx *db.Tx) error{
		"sweep": func(ctx context.Context, tx *db.Tx) error {
			_, err := tx.Q.SweepableDomains(ctx, id.First[id.DataDomain]())
			return err
		},
		"charge": func(ctx context.Context, tx *db.Tx) error {
			_, err := tx.Q.MetersDue(ctx, &by)
			return err
		},
		"erase unpaid": func(ctx context.Context, tx *db.Tx) error {
			_, err := tx.Q.UnpaidVolumes(ctx, unpaidLife.Seconds(), hiddenLife.Seconds(), id.First[id.Volume]())
			return err
		},
		"seal again": func(ctx context.Context, tx *db.Tx) error {
			_, err := tx.Q.SealedDomains(ctx, id.First[id.DataDomain](), 500)
			return err
		},
		"lock an organisation's": func(ctx context.Context, tx *db.Tx) error {
			_, err := tx.Q.LockDomainsOfOrg(ctx, w.who.Org)
			return err
		},
		"grant": func(ctx context.Context, tx *db.Tx) error {
			_, err := w.v.Hosts.packs.limiter.standing(ctx, tx.Q, w.who.Org)
			return err
		},
	} {
		w.Must(w.d.InTx(t.Context(), func(ctx context.Context, tx *db.Tx) error {
			before, err := rowsRead(ctx, tx)
			if err == nil {
				err = f(ctx, tx)
			}
			if err != nil {
				return err
			}
			after, err := rowsRead(ctx, tx)
			if n := after - before; n > 10 {
				t.Errorf("%s reads %d rows", name, n)
			}
			return err
		}))
	}
}

// rowsRead is how many rows of domains and meters the connection has read.
func rowsRead(ctx context.Context, tx *db.Tx) (n int64, err error) {
	err = tx.QueryRow(ctx, `SELECT sum(seq_tup_read + coalesce(idx_tup_fetch, 0))::bigint FROM pg_stat_xact_user_tables
		WHERE relname IN ('data_domain', 'data_meter')`).Scan(&n)
	return n, err
}
