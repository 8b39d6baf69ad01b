package metering

import (
	"context"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/money"
)

// secondBoot gives the host another boot with an anchor and lets the leases have a second start.
func (w *world) secondBoot(boot string) {
	w.T.Helper()
	w.Exec("INSERT INTO time_anchor (host_id, boot_id, number, boot_ms, server_ms) VALUES ($1, $2, 1, $3, $4)", w.host,
		boot, w.anchor.BootMS, w.anchor.ServerMS)
	w.Exec("UPDATE lease SET epoch = 2 WHERE cluster_id = $1", w.cluster)
}

// metersKnow checks of every meter that nothing is stored of its run above the number it holds, and that it holds a
// run if anything is stored.
func (w *world) metersKnow() {
	w.T.Helper()
	for _, l := range w.leases {
		stored := map[run]int64{}
		rows, err := w.DB.Pool.Query(w.T.Context(), "SELECT epoch, boot_id, seq FROM usage_segment WHERE lease_id = $1", l)
		if err != nil {
			w.T.Fatal(err)
		}
		for rows.Next() {
			r := received{lease: l}
			if err := rows.Scan(&r.Epoch, &r.BootID, &r.Seq); err != nil {
				w.T.Fatal(err)
			}
			stored[r.run()] = max(stored[r.run()], r.Seq)
		}
		w.Tx(func(ctx context.Context, tx *db.Tx) error {
			leases, err := lockCluster(ctx, tx, w.cluster)
			for _, m := range leases {
				if m.ID == l && (m.runSeq != stored[run{l, m.run}] || m.runSeq == 0 && len(stored) > 0) {
					w.T.Errorf("the meter of %s holds %d of its run, but %d is stored; %d runs", l, m.runSeq, stored[run{l, m.run}],
						len(stored))
				}
			}
			return err
		})
	}
}

// Segments of several runs of a lease arrive in any order, repeated, and with other content under the same number. What
// is stored first stands, each of the others is recognised as known or as a conflict, and the bill is what the stored
// ones prove: whether or not a meter was right about what is stored, as one is not after a replica of an older version
// has written to it.
func TestIngest_RunsInAnyOrder(t *testing.T) {
	t.Parallel()
	d := newDB(t)
	for seed := range uint64(6) {
		r, older := rand.New(rand.NewPCG(seed, 114)), seed%2 == 1
		w := newWorld(t, d, 100*money.Unit, 3_600_000, 7_200_000)
		w.mustAuthorise()
		w.age(time.Hour)
		t0 := w.now - 3_000_000
		w.window(t0, w.now, 0)
		w.secondBoot("b-2")
		var all []agentapi.Segment
		for _, l := range w.leases {
			for k := range int64(24) {
				s := w.segment(l, 1+k/3, t0+k*100_000, t0+k*100_000+100_000, false)
				s.Epoch, s.BootID, s.Anchor = 1+int(k%3+1)/2, []string{boot, boot, "b-2"}[k%3], []int64{w.anchor.Number,
					w.anchor.Number, 1}[k%3]
				s.Sign(w.host.String(), w.key)
				all = append(all, s)
			}
		}
		first := map[segmentKey]int64{} // the energy of what was sent first
		conflicts := 0
		for range 60 {
			if older && r.IntN(6) == 0 { // an older replica has stored segments and left this as it was
				w.Exec("UPDATE lease_meter SET run_seq = $2 WHERE lease_id = $1 AND run_seq > $2", w.leases[r.IntN(2)], r.IntN(4))
			}
			var send []agentapi.Segment
			for range 1 + r.IntN(6) {
				s := all[r.IntN(len(all))]
				if r.IntN(12) == 0 {
					s.EnergyMJ++
					s.Sign(w.host.String(), w.key)
				}
				send = append(send, s)
			}
			want := 0
			for _, s := range send {
				l, _ := id.Parse[id.Lease](s.Lease)
				k := segmentKey{l, s.Epoch, s.BootID, s.Seq}
				if e, ok := first[k]; !ok {
					first[k] = s.EnergyMJ
				} else if e != s.EnergyMJ {
					want++
				}
			}
			got := 0
			for _, a := range w.ingest(send...) {
				if a.Refused == refusedConflict {
					got++
				} else if a.Refused != "" {
					t.Fatalf("a segment was refused: %s", a.Refused)
				}
			}
			mustEqual(t, "conflicts", got, want)
			conflicts += got
		}
		mustEqual(t, "conflicts at all", conflicts > 0, true)
		w.ingest(all...)
		if !older {
			w.metersKnow()
		}
		var stored int
		if err := d.Pool.QueryRow(t.Context(), "SELECT count(*) FROM usage_segment WHERE lease_id = ANY($1)",
			idList(w.leases...)).Scan(&stored); err != nil {
			t.Fatal(err)
		}
		mustEqual(t, "stored", stored, len(all))
		w.Exec("UPDATE lease_meter SET frozen = false WHERE lease_id = ANY($1)", idList(w.leases...))
		mustEqual(t, "posted", w.posted(), money.CostOf(3_600_000, 2_400_000)+money.CostOf(7_200_000, 2_400_000))
		w.ledgerBalances()
	}
}

// What the meters hold saves looking: a report that continues a run reads no stored segments.
func TestLookupsOf_NewNumbersAreNotLookedFor(t *testing.T) {
	t.Parallel()
	w, t0 := open(t, newDB(t), 3_600_000)
	l := w.leases[0]
	w.ingest(w.segments(l, 1, t0, t0+900_000, false)...)
	w.Tx(func(ctx context.Context, tx *db.Tx) error {
		at := func(seq int64) *received {
			return &received{Segment: w.segment(l, seq, t0, t0+1, false), host: w.host, lease: l}
		}
		rs := []*received{at(3), at(4), at(5)}
		meters, err := lockOf(ctx, tx, rs)
		if err != nil {
			return err
		}
		look, last := lookupsOf(rs, meters, false)
		if len(look.known.Firsts) != 1 || look.known.Firsts[0] != 3 || look.known.Lasts[0] != 3 || len(look.runs) != 0 ||
			last[rs[0].run()] != 3 {
			t.Errorf("looks for %+v, knows %v", look, last)
		}
		if look, _ = lookupsOf(rs, meters, true); len(look.runs) != 1 || look.known.Lasts[0] != 5 {
			t.Errorf("looks for %+v", look)
		}
		return nil
	})
}
