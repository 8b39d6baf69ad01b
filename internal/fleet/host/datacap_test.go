package host_test

import (
	"context"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/fleet/host"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/testing/fleettest"
)

func (w *world) moved(epoch int, up, down int64) {
	w.t.Helper()
	w.report(w.agent.Host, agentapi.Sync{Leases: []agentapi.LeaseStatus{{
		LeaseRef: agentapi.LeaseRef{Lease: w.lease.String(), Epoch: epoch}, Traffic: &agentapi.Traffic{Up: up, Down: down},
	}}})
}

func (w *world) capped(upGB, downGB int64) {
	w.t.Helper()
	w.tx(func(ctx context.Context, tx *db.Tx) error {
		c := host.Change{DataCap: host.DataCap{UpGB: &upGB, DownGB: &downGB}}
		return c.Apply(ctx, tx, nil, account.Principal{Org: w.org, User: w.user()}, w.agent.Host)
	})
}

func (w *world) user() (user id.User) {
	w.t.Helper()
	if err := w.d.Pool.QueryRow(w.t.Context(), "SELECT id FROM app_user LIMIT 1").Scan(&user); err != nil {
		w.t.Fatal(err)
	}
	return user
}

func (w *world) month() client.DataMonth {
	w.t.Helper()
	m, err := host.New(w.d, nil).DataMonth(w.t.Context(), account.Principal{Org: w.org}, w.agent.Host)
	if err != nil {
		w.t.Fatal(err)
	}
	return m
}

func (w *world) notices() (keys []string) {
	w.t.Helper()
	rows, err := w.d.Pool.Query(w.t.Context(), "SELECT dedupe_key FROM notice WHERE dedupe_key LIKE 'data_cap:%' ORDER "+
		"BY id")
	if err != nil {
		w.t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var k string
		if err := rows.Scan(&k); err != nil {
			w.t.Fatal(err)
		}
		keys = append(keys, strings.Split(k, ":")[1])
	}
	return keys
}

// In whatever order reports arrive, twice, late, of several epochs, in whatever month: the sum of a month is what its
// reports added, and all months together are what the leases moved. Deleting old leases changes no sum.
func TestAMonthIsTheSumOfWhatReportsAdded(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.exec("UPDATE lease SET epoch = 3 WHERE id = $1", w.lease)
	r := rand.New(rand.NewPCG(1, 2))
	type sums struct{ up, down int64 }
	runs, months := map[int]sums{}, map[string]sums{}
	begins := []string{"2026-01-31 23:59:59+00", "2026-02-01 00:00:00+00", "2026-01-31 23:30:00-01",
		"2026-03-01 00:30:00+01"}
	names := []string{"2026-01-01", "2026-02-01", "2026-02-01", "2026-02-01"}
	for range 200 {
		epoch, at := 1+r.IntN(3), r.IntN(len(begins))
		before := runs[epoch]
		next := sums{max(before.up, r.Int64N(1e12)), max(before.down, before.down+r.Int64N(1e9)-5e8)}
		w.exec(`INSERT INTO lease_traffic AS t (lease_id, epoch, host_id, opened, refused, up_bytes, down_bytes, last_at)
			VALUES ($1, $2, $3, 0, 0, $4, $5, $6::text::timestamptz)
			ON CONFLICT (lease_id, epoch) DO UPDATE SET up_bytes = excluded.up_bytes, down_bytes = excluded.down_bytes, last_at
			= excluded.last_at`,
			w.lease, epoch, w.agent.Host, next.up, next.down, begins[at])
		m := months[names[at]]
		months[names[at]] = sums{m.up + next.up - before.up, m.down + next.down - before.down}
		runs[epoch] = next
	}
	now := sums{}
	for range 40 { // through the door, in the present month
		epoch := 1 + r.IntN(3)
		up, down := r.Int64N(2e12), r.Int64N(1e12)
		w.moved(epoch, up, down)
		before := runs[epoch]
		runs[epoch] = sums{max(before.up, up), max(before.down, down)}
		now = sums{now.up + runs[epoch].up - before.up, now.down + runs[epoch].down - before.down}
	}
	if _, err := host.DropOldTraffic(t.Context(), w.d); err != nil {
		t.Fatal(err)
	}
	if m := w.month(); m.UpBytes != now.up || m.DownBytes != now.down {
		t.Errorf("this month %d up and %d down, want %+v", m.UpBytes, m.DownBytes, now)
	}
	for name, want := range months {
		var got sums
		if err := w.d.Pool.QueryRow(t.Context(), "SELECT up_bytes, down_bytes FROM host_month_traffic WHERE month = "+
			"$1::text::date", name).Scan(&got.up, &got.down); err != nil || got != want {
			t.Errorf("%s: %+v, want %+v, %v", name, got, want, err)
		}
	}
}

// The operator gets one notice at 90 % and one at the end. Then nothing new is rented until the month ends or the cap
// is raised.
func TestADataCapStopsNewRentals(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	fleettest.Activate(t, w.d, w.agent)
	why := func() string {
		t.Helper()
		h, err := host.Read(t.Context(), w.d.Q, w.agent.Host)
		if err != nil {
			t.Fatal(err)
		}
		return h.Unsellable(time.Now())
	}
	w.moved(1, 50e9, 899e9) // no cap
	w.capped(100, 1000)
	if m := w.month(); m.UsedPercent != 89.9 || m.CappedUntil != nil || *m.UpCapGB != 100 || len(w.notices()) != 0 ||
		why() != "" {
		t.Errorf("%+v, told %v, %s", m, w.notices(), why())
	}
	w.moved(1, 90e9, 899e9)
	w.moved(1, 99_999_999_999, 899e9)
	if got := strings.Join(w.notices(), " "); got != "90" || why() != "" {
		t.Errorf("told %s, %s", got, why())
	}
	w.moved(1, 100e9, 899e9)
	w.moved(1, 120e9, 899e9)
	m := w.month()
	begin, err := time.Parse("2006-01", m.Month)
	if err != nil {
		t.Fatal(err)
	}
	next := begin.AddDate(0, 1, 0)
	want := "its line's data cap for " + begin.Format("January") + " is used up; it is offered again on " +
		next.Format("2 January")
	if got := strings.Join(w.notices(), " "); got != "90 100" || why() != want || m.CappedUntil == nil ||
		!m.CappedUntil.Equal(next) {
		t.Errorf("told %s, %q, want %q, %+v", got, why(), want, m)
	}
	w.capped(0, 1000) // no cap on what is sent
	if m := w.month(); m.CappedUntil != nil || m.UpCapGB != nil || why() != "" {
		t.Errorf("%+v, %s", m, why())
	}
	w.capped(119, 1000)
	if why() != want || len(w.notices()) != 2 {
		t.Errorf("%s, told %v", why(), w.notices())
	}
	// The month ends.
	w.exec("UPDATE host_month_traffic SET month = month - interval '1 month'")
	w.exec("UPDATE host SET capped_until = date_trunc('month', clock_timestamp() AT TIME ZONE 'UTC') AT TIME ZONE 'UTC'")
	if m := w.month(); m.UpBytes != 0 || m.CappedUntil != nil || why() != "" {
		t.Errorf("%+v, %s", m, why())
	}
	if n, err := host.LiftDataCaps(t.Context(), w.d); n != 1 || err != nil {
		t.Errorf("lifted %d, %v", n, err)
	}
	w.moved(1, 130e9, 899e9)
	if m := w.month(); m.UpBytes != 10e9 || m.DownBytes != 0 || why() != "" {
		t.Errorf("%+v, %s", m, why())
	}
}

func TestADataCapIsTheOperatorsAndWithinBounds(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	user := w.user()
	set := func(org id.Org, up, down int64) error {
		return w.d.InTx(t.Context(), func(ctx context.Context, tx *db.Tx) error {
			c := host.Change{DataCap: host.DataCap{UpGB: &up, DownGB: &down}}
			return c.Apply(ctx, tx, nil, account.Principal{Org: org, User: user}, w.agent.Host)
		})
	}
	if f := fault.From(set(w.org, -1, host.MaxDataCap+1)); f == nil || len(f.Fields) != 2 ||
		f.Fields[0].Location != "up_cap_gb" || f.Fields[1].Location != "down_cap_gb" {
		t.Errorf("%+v", f)
	}
	other := id.New[id.Org]()
	if err := set(other, 1, 1); !fault.Is(err, fault.NotFound) {
		t.Errorf("another org's: %v", err)
	}
	if _, err := host.New(w.d, nil).DataMonth(t.Context(), account.Principal{Org: other}, w.agent.Host); !fault.Is(err,
		fault.NotFound) {
		t.Errorf("another org's: %v", err)
	}
	w.capped(1, host.MaxDataCap)
	w.moved(1, 1<<62, 1<<62) // no line moves that much: it is taken, and stays in bounds
	w.exec("UPDATE lease SET epoch = 3")
	w.moved(2, 1<<62, 1<<62)
	w.moved(3, 1<<62, 1<<62)
	if m := w.month(); m.UpBytes != 9e18 || m.UsedPercent < 100 {
		t.Errorf("%+v", m)
	}
}

// What ranks exchange over the line is summed by itself and bounded with the rest; what they exchanged within the
// host's networks is not. An agent that does not count it takes nothing back.
func TestTrafficBetweenRanksCountsForTheDataCap(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.exec("UPDATE lease SET epoch = 3")
	tell := func(epoch int, v agentapi.Traffic) {
		t.Helper()
		w.report(w.agent.Host, agentapi.Sync{Leases: []agentapi.LeaseStatus{{
			LeaseRef: agentapi.LeaseRef{Lease: w.lease.String(), Epoch: epoch},
			Traffic:  &v,
		}}})
	}
	want := func(up, down, overlayUp, overlayDown int64, percent float64, told ...string) {
		t.Helper()
		m := w.month()
		if m.UpBytes != up || m.DownBytes != down || m.OverlayUp != overlayUp || m.OverlayDown != overlayDown ||
			m.UsedPercent != percent || (percent >= 100) != (m.CappedUntil != nil) {
			t.Errorf("%+v", m)
		}
		if got := w.notices(); !slices.Equal(got, told) {
			t.Errorf("told %v, want %v", got, told)
		}
	}
	w.capped(10, 100)
	tell(1, agentapi.Traffic{OverlayUp: 4e9, RanksSent: 90e9, RanksReceived: 90e9}) // nothing to the internet
	want(0, 0, 4e9, 0, 40)
	tell(1, agentapi.Traffic{Up: 1e9, Down: 2e9, OverlayUp: 4e9, OverlayDown: 3e9})
	want(1e9, 2e9, 4e9, 3e9, 50)
	tell(1, agentapi.Traffic{Up: 2e9, Down: 2e9})                  // of an agent that went back a version
	tell(1, agentapi.Traffic{OverlayUp: 1e9, OverlayDown: 1})      // late
	tell(2, agentapi.Traffic{OverlayUp: 3e9, RanksSent: 3e9 + 10}) // of the next run
	want(2e9, 2e9, 7e9, 3e9, 90, "90")
	w.pulled("a", 95e9)
	want(2e9, 2e9, 7e9, 3e9, 100, "90", "100")
	tell(2, agentapi.Traffic{OverlayUp: 1 << 62, OverlayDown: 1 << 62}) // no line moves that much
	tell(3, agentapi.Traffic{OverlayUp: 1 << 62, OverlayDown: 1 << 62, Up: 1 << 62, Down: 1 << 62})
	if m := w.month(); m.OverlayUp != 9e18 || m.OverlayDown != 9e18 || m.Sent() < 9e18 || m.Received() < 9e18 {
		t.Errorf("%+v", m)
	}
}
