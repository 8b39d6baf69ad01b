package volume

import (
	"crypto/sha256"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/data/manifest"
	"github.com/musterhq/muster/internal/data/store"
	"github.com/musterhq/muster/internal/id"
)

// outcome counts what happened in a race.
type outcome struct {
	commits, fenced, missing, collected, dangling, stale atomic.Int64
}

// race runs writers that commit and refer to old packs, hosts that return late, deletions, two sweepers and a lister,
// all at the same time, on one volume for each writer. It looks for packs that a living snapshot names and the store
// does not have, and for commits by a run that is over.
func race(t *testing.T, without string, length time.Duration) *outcome {
	w := newWorld(t, Config{Grace: time.Millisecond, KeepUnknown: time.Millisecond})
	w.v.Hosts.sessions.without = without
	var o outcome
	const writers = 3
	end := time.Now().Add(length)
	var wg sync.WaitGroup
	for i := range writers {
		vol := w.create("data-" + string(rune('a'+i)))
		_, lease, err := w.rent(w.hosts[0], agentapi.MountRW, vol.ID)
		w.Must(err)
		wg.Go(func() { w.raceWriter(vol.ID, lease, end, &o) })
	}
	for range 2 {
		wg.Go(func() {
			for time.Now().Before(end) {
				// A URL's time is over as soon as the pack is stored: else nothing is collected during the test.
				_, _ = w.d.Pool.Exec(t.Context(), "UPDATE data_pack SET url_until = clock_timestamp() WHERE state <> 'granted'")
				n, err := w.v.Collector.Sweep(t.Context())
				if err != nil && !errors.Is(err, t.Context().Err()) {
					t.Errorf("sweep: %v", err)
				}
				o.collected.Add(int64(n))
			}
		})
	}
	wg.Go(func() { // the store is listed again and again; what no row knows has no time at all
		for time.Now().Before(end) {
			_, _ = w.d.Pool.Exec(t.Context(), "UPDATE data_check SET list_ended = NULL")
			if _, err := w.v.Inventory.Take(t.Context()); err != nil {
				t.Errorf("list the store: %v", err)
			}
		}
	})
	wg.Wait()
	w.dangling(&o)
	return &o
}

// raceWriter takes snapshots that refer to packs of earlier ones, some of them collected since, and is sometimes
// started again while a request of its former run is under way.
func (w *world) raceWriter(vol id.Volume, lease id.Lease, end time.Time, o *outcome) {
	rnd := rand.New(rand.NewPCG(rand.Uint64(), 1))
	a := w.agent(w.hosts[0], lease, vol)
	if err := a.open(agentapi.MountRW); err != nil {
		w.t.Error(err)
		return
	}
	var earlier []int64
	for time.Now().Before(end) {
		snap := id.New[id.Snapshot]()
		p, err := a.build(map[string][]byte{"f": noise(100)})
		if err != nil {
			w.t.Errorf("build: %v", err)
			return
		}
		if _, err := a.grant(snap, p); err != nil {
			w.t.Errorf("grant: %v", err)
			return
		}
		var domain id.DataDomain
		_ = w.d.Pool.QueryRow(w.t.Context(), "SELECT domain_id FROM volume WHERE id = $1", vol).Scan(&domain)
		if err := w.store.Put(w.t.Context(), store.Key(domain, p.n), p.body); err != nil {
			w.t.Error(err)
			return
		}
		var more []int64
		for range rnd.IntN(3) {
			if len(earlier) > 0 {
				more = append(more, earlier[rnd.IntN(len(earlier))])
			}
		}
		if rnd.IntN(4) == 0 { // the host is started again; the run before it sends its commit late
			old := *a
			_, _ = w.d.Pool.Exec(w.t.Context(), "UPDATE lease SET epoch = epoch + 1 WHERE id = $1", lease)
			a.ref.Epoch++
			if err := a.open(agentapi.MountRW); err != nil {
				w.t.Errorf("open: %v", err)
				return
			}
			switch err := old.commit(snap, p, more...); code(err) {
			case agentapi.VolumeFenced:
				o.fenced.Add(1)
			case "":
				o.stale.Add(1)
				a.head = old.head
			}
			continue
		}
		switch err := a.commit(snap, p, more...); code(err) {
		case "":
			o.commits.Add(1)
			earlier = append(earlier, p.n)
			w.forget(vol, a.head, rnd)
		case agentapi.VolumeMissing:
			o.missing.Add(1)
		default:
			w.t.Errorf("commit: %v", err)
			return
		}
	}
}

// forget deletes snapshots other than the last one, most of the time.
func (w *world) forget(vol id.Volume, head int64, rnd *rand.Rand) {
	for seq := max(1, head-3); seq < head; seq++ {
		if rnd.IntN(2) == 0 {
			_ = w.v.Snapshots.Delete(w.t.Context(), w.who, vol, seq) // it may be deleted already
		}
	}
}

// dangling counts packs that a living snapshot needs and that the store does not have as they were granted.
func (w *world) dangling(o *outcome) {
	rows, err := w.d.Pool.Query(w.t.Context(), `SELECT v.domain_id, s.packs FROM volume_snapshot s
		JOIN volume v ON v.id = s.volume_id WHERE s.deleted_at IS NULL AND v.deleted_at IS NULL`)
	w.Must(err)
	defer rows.Close()
	for rows.Next() {
		var domain id.DataDomain
		var packs []byte
		w.Must(rows.Scan(&domain, &packs))
		set, err := manifest.DecodePackSet(packs)
		w.Must(err)
		for _, r := range set.Runs() {
			for n := r.First; n <= r.Last; n++ {
				if o2, err := w.store.Head(w.t.Context(), store.Key(domain, n)); err != nil ||
					o2.Sum == sha256.Sum256(nil) {
					o.dangling.Add(1)
				}
			}
		}
	}
}

// However commits, restarts, deletions and sweeps meet, no snapshot names a pack that is gone, and no run commits after
// the next one has begun. Without the check of packs, or without the fence, this test notices.
func TestCollectionRaces(t *testing.T) {
	o := race(t, "", 4*time.Second)
	t.Logf("%d commits, %d fenced, %d to send again, %d collected", o.commits.Load(), o.fenced.Load(), o.missing.Load(),
		o.collected.Load())
	if o.dangling.Load() != 0 || o.stale.Load() != 0 {
		t.Fatalf("%d packs dangle, %d stale commits", o.dangling.Load(), o.stale.Load())
	}
	// How much happens depends on the machine: a mutant is tried until it is seen.
	for without, seen := range map[string]func(*outcome) int64{
		withoutPackCheck: func(o *outcome) int64 { return o.dangling.Load() },
		withoutFence:     func(o *outcome) int64 { return o.stale.Load() },
	} {
		caught := false
		for range 10 {
			if caught = seen(race(t, without, 4*time.Second)) > 0; caught {
				break
			}
		}
		if !caught {
			t.Errorf("nothing notices that the %s is left out", without)
		}
	}
}
