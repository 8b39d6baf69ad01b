package metering

import (
	"context"
	"crypto/ed25519"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/idem"
	"github.com/musterhq/muster/internal/money"
	"github.com/musterhq/muster/internal/testing/billingtest"
)

// open is a world in which an hour up to now was authorised and is one window.
func open(t *testing.T, d *db.DB, rates ...money.Micro) (*world, int64) {
	t.Helper()
	w := newWorld(t, d, 100*money.Unit, rates...)
	w.mustAuthorise()
	w.age(time.Hour)
	t0 := w.now - 3_000_000
	w.window(t0, w.now, 0)
	return w, t0
}

func TestIngest_RefusedSegments(t *testing.T) {
	t.Parallel()
	d := newDB(t)
	w, t0 := open(t, d, 3_600_000)
	other, _ := open(t, d, 3_600_000)
	boss := w.Admin().Org
	good := w.segment(w.leases[0], 9, t0, t0+60_000, false)
	_, stranger, _ := ed25519.GenerateKey(nil)
	change := func(f func(s *agentapi.Segment)) agentapi.Segment {
		s := good
		f(&s)
		s.Sign(w.host.String(), w.key)
		return s
	}
	for name, c := range map[string]struct {
		s    agentapi.Segment
		want string
	}{
		"not an id":     {change(func(s *agentapi.Segment) { s.Lease = "ls_x" }), refusedMalformed},
		"NUL in a text": {change(func(s *agentapi.Segment) { s.BootID = "a\x00b" }), refusedMalformed},
		"energy":        {change(func(s *agentapi.Segment) { s.EnergyMJ = maxEnergy + 1 }), refusedMalformed},
		"too long":      {change(func(s *agentapi.Segment) { s.StartMS -= agentapi.MaxSegmentMS }), refusedSignature},
		"another key": {func() agentapi.Segment { s := good; s.Sign(w.host.String(), stranger); return s }(),
			refusedSignature},
		"another host": {func() agentapi.Segment { s := good; s.Sign(other.host.String(), w.key); return s }(),
			refusedSignature},
		"changed":          {func() agentapi.Segment { s := good; s.StartMS--; return s }(), refusedSignature},
		"another's lease":  {change(func(s *agentapi.Segment) { s.Lease = other.leases[0].String() }), refusedForeign},
		"no lease":         {change(func(s *agentapi.Segment) { s.Lease = id.New[id.Lease]().String() }), refusedForeign},
		"no such anchor":   {change(func(s *agentapi.Segment) { s.Anchor = 7 }), refusedAnchor},
		"another boot":     {change(func(s *agentapi.Segment) { s.BootID = "b-2" }), refusedAnchor},
		"not its clock":    {change(func(s *agentapi.Segment) { s.EndMS++ }), refusedClock},
		"future":           {w.segment(w.leases[0], 9, w.now+100_000, w.now+200_000, false), refusedFuture},
		"epoch to come":    {change(func(s *agentapi.Segment) { s.Epoch = 2 }), refusedEpoch},
		"before the lease": {w.segment(w.leases[0], 9, w.now-3_700_000, w.now-3_500_000, false), refusedBefore},
		"after its last":   {change(func(s *agentapi.Segment) { s.Lease = stopped(t, d, w).String() }), refusedUnauthorised},
		"backward interval": {change(func(s *agentapi.Segment) { s.StartMS, s.EndMS = s.EndMS, s.StartMS }),
			refusedMalformed},
	} {
		before := w.money()
		acks := w.ingest(c.s)
		want := []agentapi.UsageAck{{
			LeaseRef: agentapi.LeaseRef{Lease: c.s.Lease, Epoch: c.s.Epoch},
			BootID:   c.s.BootID,
			Through:  9,
			Refused:  c.want,
		}}
		if diff := cmp.Diff(want, acks); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
		if got := w.money(); got != before {
			t.Errorf("%s: money moved: %+v, was %+v", name, got, before)
		}
		var reasons []string
		w.ingest(c.s) // again: kept once
		rows, err := d.Pool.Query(t.Context(), "SELECT reason FROM segment_quarantine WHERE host_id = $1", w.host)
		if err != nil {
			t.Fatal(err)
		}
		for rows.Next() {
			var r string
			if err := rows.Scan(&r); err != nil {
				t.Fatal(err)
			}
			reasons = append(reasons, r)
		}
		if diff := cmp.Diff([]string{c.want}, reasons); diff != "" {
			t.Errorf("%s: quarantine: %s", name, diff)
		}
		for who, org := range map[string]id.Org{"operator": w.operator, "administrator": boss} {
			var notices int
			err = d.Pool.QueryRow(t.Context(), "SELECT count(*) FROM notice WHERE org_id = $1 AND dedupe_key LIKE $2",
				org, fmt.Sprintf("segment_refused:%s:%s:%%", w.host, c.want)).Scan(&notices)
			if err != nil || notices != 1 {
				t.Errorf("%s: the %s was told %d times: %v", name, who, notices, err)
			}
		}
		w.Exec("DELETE FROM segment_quarantine")
	}
	mustEqual(t, "acks", fmt.Sprint(w.ingest(good)), fmt.Sprint([]agentapi.UsageAck{{
		LeaseRef: agentapi.LeaseRef{Lease: good.Lease, Epoch: 1},
		BootID:   boot,
		Through:  9,
	}}))
}

// stopped is a lease on w's host that had to stop long ago.
func stopped(t *testing.T, d *db.DB, w *world) id.Lease {
	t.Helper()
	v := newWorld(t, d, money.Unit, 1_000_000)
	v.mustAuthorise()
	v.age(time.Hour)
	w.Exec("UPDATE lease SET host_id = $1, run_until = created_at WHERE id = $2", w.host, v.leases[0])
	return v.leases[0]
}

func TestIngest_ConflictFreezesLease(t *testing.T) {
	t.Parallel()
	w, t0 := open(t, newDB(t), 3_600_000, 3_600_000)
	w.ingest(w.segment(w.leases[0], 1, t0, t0+60_000, false))
	w.posted()
	lie := w.segment(w.leases[0], 1, t0, t0+120_000, false)
	acks := w.ingest(lie, w.segment(w.leases[0], 2, t0+60_000, t0+90_000, false), w.segment(w.leases[1], 1, t0, t0+60_000,
		false))
	ref := agentapi.LeaseRef{Lease: w.leases[0].String(), Epoch: 1}
	want := []agentapi.UsageAck{
		{LeaseRef: ref, BootID: boot, Through: 1, Refused: refusedConflict}, {LeaseRef: ref, BootID: boot, Through: 2},
		{LeaseRef: agentapi.LeaseRef{Lease: w.leases[1].String(), Epoch: 1}, BootID: boot, Through: 1},
	}
	if diff := cmp.Diff(want, acks); diff != "" {
		t.Fatal(diff)
	}
	mustEqual(t, "the first stands, the rest waits", w.posted(), 2*money.CostOf(3_600_000, 60_000))
	var notices int
	if err := w.DB.Pool.QueryRow(t.Context(), "SELECT count(*) FROM notice WHERE org_id = $1",
		w.operator).Scan(&notices); err != nil || notices != 1 {
		t.Fatal(notices, err)
	}
	if ids, err := Frozen(t.Context(), w.DB.Q, w.operator); err != nil || !slices.Equal(ids, w.leases[:1]) {
		t.Fatal(ids, err)
	}
	w.ingest(w.segment(w.leases[0], 3, t0+90_000, t0+100_000, false))
	mustEqual(t, "still frozen", w.posted(), 2*money.CostOf(3_600_000, 60_000))
	unfreeze := func() error {
		return billingtest.Err(NewLeases(w.DB).Unfreeze(t.Context(), account.Principal{
			Org:   w.operator,
			Admin: true,
		}, w.leases[0], "the host was restored from a backup", idem.Request{}))
	}
	w.seeFrozen(lie)
	if err := unfreeze(); err != nil {
		t.Fatal(err)
	}
	mustEqual(t, "after a look", w.usage().Posted, money.CostOf(3_600_000, 60_000)+money.CostOf(3_600_000, 100_000))
	if err := unfreeze(); !fault.Is(err, fault.Conflict) {
		t.Fatal(err)
	}
	w.ingest(lie) // known: does not freeze again
	w.ingest(w.segment(w.leases[0], 4, t0+100_000, t0+110_000, false))
	mustEqual(t, "not frozen again", w.posted(), money.CostOf(3_600_000, 60_000)+money.CostOf(3_600_000, 110_000))
	w.ledgerBalances()
}

// Overlaps are charged once, whichever comes first: refusing the later one would make the bill depend on the order.
func TestIngest_OverlapsCountOnce(t *testing.T) {
	t.Parallel()
	d := newDB(t)
	for _, order := range [][]int{{0, 1, 2}, {2, 1, 0}, {1, 0, 2}} {
		w, t0 := open(t, d, 3_600_000)
		segs := []agentapi.Segment{
			w.segment(w.leases[0], 1, t0, t0+300_000, false),
			w.segment(w.leases[0], 2, t0+100_000, t0+400_000, false),
			w.segment(w.leases[0], 3, t0+50_000, t0+60_000, false),
		}
		for _, k := range order {
			w.ingest(segs[k])
		}
		mustEqual(t, "posted", w.posted(), money.CostOf(3_600_000, 400_000))
	}
}

// What a posting reads does not grow with a lease's past.
func TestIngest_PastWindowsNotRead(t *testing.T) {
	t.Parallel()
	w := newWorld(t, newDB(t), 100*money.Unit, 3_600_000)
	w.mustAuthorise()
	w.age(time.Hour)
	t0 := w.now - 3_500_000
	for k := range int64(20) {
		w.window(t0+k*10_000, t0+k*10_000+9_000, t0+k*10_000+9_000)
	}
	w.ingest(w.segments(w.leases[0], 1, t0, t0+195_500, false)...)
	mustEqual(t, "posted", w.posted(), money.CostOf(3_600_000, 19*9_000+5_500))
	w.Tx(func(ctx context.Context, tx *db.Tx) error {
		leases, err := lockCluster(ctx, tx, w.cluster)
		if err == nil && len(leases[0].windows) != 1 {
			t.Errorf("%d windows are read", len(leases[0].windows))
		}
		return err
	})
	w.ingest(w.segments(w.leases[0], 2, t0+195_500, t0+300_000, false)...)
	mustEqual(t, "all posted", w.posted(), money.CostOf(3_600_000, 20*9_000))
	w.ledgerBalances()
}

// The same segments at the same time from many sides are stored and charged once.
func TestIngest_ConcurrentRepetitions(t *testing.T) {
	t.Parallel()
	w, t0 := open(t, newDB(t), 3_600_000, 7_200_000, 1_234_567)
	var all []agentapi.Segment
	for _, l := range w.leases {
		all = append(all, w.segments(l, 1, t0, t0+2_400_000, false)...)
	}
	var wg sync.WaitGroup
	for k := range 8 {
		wg.Go(func() {
			for i := range all {
				from := (i*(2*k+1) + k) % len(all)
				some := all[from:min(from+1+k, len(all))]
				if _, err := NewCollector(w.DB).Ingest(context.Background(), w.host, some, nil); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	w.ingest(all...)
	mustEqual(t, "posted", w.posted(), money.CostOf(3_600_000, 2_400_000)+money.CostOf(7_200_000, 2_400_000)+
		money.CostOf(1_234_567, 2_400_000))
	w.ledgerBalances()
}

// A host that leaves hundreds of holes does not blow the meter up: what goes beyond comes again once holes are closed.
func TestIngest_TooManyHolesWait(t *testing.T) {
	t.Parallel()
	w, t0 := open(t, newDB(t), 3_600_000)
	l := w.leases[0]
	var odd, even []agentapi.Segment
	for k := range int64(1200) {
		s := w.segment(l, k+1, t0+k*100, t0+k*100+100, false)
		if k%2 == 1 {
			odd = append(odd, s)
		} else {
			even = append(even, s)
		}
	}
	send := func(segs []agentapi.Segment) (left []agentapi.Segment) {
		for i := 0; i < len(segs); i += 100 {
			batch := segs[i:min(i+100, len(segs))]
			through := int64(0)
			for _, a := range w.ingest(batch...) {
				through = a.Through
			}
			for _, s := range batch {
				if s.Seq > through {
					left = append(left, s)
				}
			}
		}
		return left
	}
	left := send(odd)
	mustEqual(t, "waiting", len(left), 100)
	mustEqual(t, "in order", len(send(even)), 0)
	mustEqual(t, "again", len(send(left)), 0)
	mustEqual(t, "posted", w.posted(), money.CostOf(3_600_000, 120_000))
}

func TestAnchors(t *testing.T) {
	t.Parallel()
	const b, s = 5_000_000, 1_700_000_000_000
	first := &agentapi.Anchor{BootID: boot, Number: 1, BootMS: b, ServerMS: s}
	for name, c := range map[string]struct {
		boot, now int64
		want      *agentapi.Anchor // nil: the first again
	}{
		"soon": {b + 60_000, s + 60_000, nil},
		"after 5 min": {b + 300_000, s + 300_000, &agentapi.Anchor{
			BootID:   boot,
			Number:   2,
			BootMS:   b + 300_000,
			ServerMS: s + 300_000,
		}},
		"as quick": {b + 299_990, s + 300_000, &agentapi.Anchor{
			BootID:   boot,
			Number:   2,
			BootMS:   b + 299_990,
			ServerMS: s + 300_000,
		}},
		"slower": {b + 299_980, s + 300_000, nil},
		"slower, overdue": {b + 539_100, s + 540_000, &agentapi.Anchor{
			BootID:   boot,
			Number:   2,
			BootMS:   b + 539_100,
			ServerMS: s + 540_000,
		}},
		"delayed":   {b + 530_000, s + 540_000, nil},
		"overtaken": {b - 1, s + 300_000, nil},
		"first was late": {b + 9_000, s + 1_000, &agentapi.Anchor{
			BootID:   boot,
			Number:   2,
			BootMS:   b + 9_000,
			ServerMS: s + 1_000,
		}},
		"hardly late": {b + 1_019, s + 1_000, nil},
		"set back":    {b + 1_000, s, nil},
		"long silence": {b + 86_400_000, s + 86_440_000, &agentapi.Anchor{
			BootID:   boot,
			Number:   2,
			BootMS:   b + 86_400_000,
			ServerMS: s + 86_440_000,
		}},
		"delayed by 1min": {b + 86_340_000, s + 86_400_000 + 1000, nil},
	} {
		got := nextAnchor(first, boot, c.boot, c.now)
		want := c.want
		if want == nil {
			want = first
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
	w := newWorld(t, newDB(t), 0)
	w.Tx(func(ctx context.Context, tx *db.Tx) error {
		again, err := NewCollector(w.DB).IssueAnchor(w.T.Context(), w.host, boot, 10_000_000)
		if err != nil {
			return err
		}
		mustEqual(t, "the answer may have been lost", *again, w.anchor)
		other, err := NewCollector(w.DB).IssueAnchor(w.T.Context(), w.host, "b-2", 1)
		if err != nil || other.Number != 1 {
			t.Errorf("another boot: %+v %v", other, err)
		}
		none, err := NewCollector(w.DB).IssueAnchor(w.T.Context(), w.host, "", 1)
		if err != nil || none != nil {
			t.Errorf("no boot: %+v %v", none, err)
		}
		return nil
	})
}
