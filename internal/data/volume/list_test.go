package volume

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/data/store"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/id"
)

// list makes a whole round of the list.
func (w *scrubbed) list() {
	w.t.Helper()
	w.Exec("UPDATE data_check SET list_ended = NULL")
	_, err := w.v.Inventory.Take(w.t.Context())
	w.Must(err)
	var whole bool
	w.Must(w.d.Pool.QueryRow(w.t.Context(), "SELECT list_ended IS NOT NULL FROM data_check").Scan(&whole))
	if !whole {
		w.t.Fatal("the round has not ended")
	}
}

// later moves what was found so many days into the past.
func (w *scrubbed) later(days int) {
	w.Exec(`UPDATE data_stray SET found_at = found_at - interval '1 day' * $1, stored_at = stored_at - interval '1 day' * $1,
		try_at = try_at - interval '1 day' * $1`, days)
}

// has reports whether the store has an object.
func (w *scrubbed) has(key string) bool {
	w.t.Helper()
	_, err := w.world.store.Head(w.t.Context(), key)
	if err != nil && err != store.ErrNotFound {
		w.t.Fatal(err)
	}
	return err == nil
}

func (w *scrubbed) strays() (n int) {
	w.t.Helper()
	w.Must(w.d.Pool.QueryRow(w.t.Context(), "SELECT count(*) FROM data_stray").Scan(&n))
	return n
}

// A pack that the list lacks is queried at once, not in a week, and is lost if the store confirms that. A pack that the
// store has, also with another length, is not lost; the list alone decides nothing.
func TestTheListFindsWhatIsMissing(t *testing.T) {
	t.Parallel()
	w := newScrubbed(t, 4, Config{})
	w.scrub()
	w.remove(1)
	w.replace(2, []byte("short"))
	// It forgets one that the store has.
	w.store.list = func(after string) iter.Seq2[store.Listed, error] {
		return func(yield func(store.Listed, error) bool) {
			for o, err := range w.world.store.List(t.Context(), store.Packs, after) {
				if o.Key != w.key(3) && !yield(o, err) {
					return
				}
			}
		}
	}
	w.scrub()
	if got := w.states(); !slices.Equal(got, []string{"", "", "", ""}) {
		t.Fatalf("before the list: %q", got)
	}
	w.list()
	if got := w.states(); !slices.Equal(got, []string{"", "", "", ""}) {
		t.Fatalf("the list alone decides: %q", got)
	}
	w.scrub()
	if got := w.states(); !slices.Equal(got, []string{"", "lost", "damaged", ""}) {
		t.Fatalf("%q", got)
	}
	var looked int
	w.Must(w.d.Pool.QueryRow(t.Context(), `SELECT count(*) FROM data_pack, data_check WHERE verified_at >= whole_from
		AND retry_at IS NULL`).Scan(&looked))
	if looked != 2 {
		t.Errorf("%d packs were seen, by the list or by looking", looked)
	}
}

// An object of a known data domain that no row knows is deleted once it was known to be so for long enough, however old
// it is; not while a session has reserved its number, which it may still be granted.
func TestUnknownObjectsAreDeleted(t *testing.T) {
	t.Parallel()
	w := newScrubbed(t, 1, Config{KeepUnknown: 10 * 24 * time.Hour})
	late, err := w.agent.build(map[string][]byte{"f": noise(10)})
	w.Must(err)
	granted, err := w.agent.build(map[string][]byte{"g": noise(10)})
	w.Must(err)
	u, err := w.agent.grant(id.New[id.Snapshot](), granted)
	w.Must(err)
	put(t, u, granted.body)
	lateKey := store.Key(w.domain, late.n)
	w.Must(w.store.Put(t.Context(), lateKey, late.body)) // reserved, and no row
	w.list()
	if n := w.strays(); n != 1 {
		t.Fatalf("%d unknown objects", n)
	}
	w.later(9)
	w.list()
	if !w.has(lateKey) {
		t.Fatal("it is deleted too early")
	}
	w.later(2)
	w.list()
	if !w.has(lateKey) {
		t.Fatal("it is deleted while its number is reserved")
	}
	w.Exec("UPDATE data_session SET closed_at = clock_timestamp()")
	_, err = w.v.Collector.Sweep(t.Context())
	w.Must(err)
	w.later(1)
	w.list()
	if w.has(lateKey) || w.strays() != 0 {
		t.Fatal("it is not deleted")
	}
	if !w.has(w.key(0)) || !w.has(store.Key(w.domain, granted.n)) {
		t.Fatal("a pack with a row was deleted")
	}
}

// What may be another installation's, or of no form that this one gives to keys, is never deleted. Administrators are
// notified.
func TestForeignObjectsAreLeftAlone(t *testing.T) {
	t.Parallel()
	w := newScrubbed(t, 1, Config{KeepUnknown: time.Hour})
	foreign := id.New[id.DataDomain]()
	keys := []string{
		store.Key(foreign, 1), "d/other/1", "x/" + w.domain.String() + "/99",
		"d/" + w.domain.String() + "/0", "d/" + w.domain.String() + "/01", "d/" + w.domain.String() + "/x",
		"d/" + w.domain.String() + "/2000000000000",
	}
	for _, key := range keys {
		w.Must(w.store.Put(t.Context(), key, []byte("theirs")))
	}
	for range 3 {
		w.list()
		w.later(30)
	}
	for _, key := range keys {
		if !w.has(key) {
			t.Errorf("%s was deleted", key)
		}
	}
	contains(t, w.notices(true), 1, "has 6 objects", "left alone")
	if n := w.strays(); n != 0 {
		t.Errorf("%d unknown objects", n)
	}
	// A key that has one part more is another installation's, which has this one's prefix in its own.
	if k, ok := packOf(store.Listed{Key: "d/d/" + w.domain.String() + "/1"}); ok {
		t.Errorf("%+v", k)
	}
}

// After the database was restored to an earlier moment, the packs of the lost hours are kept for as long as others that
// no row knows, counted from then on, and their numbers are not given again.
func TestARestoredDatabase(t *testing.T) {
	t.Parallel()
	w := newScrubbed(t, 1, Config{KeepUnknown: 10 * 24 * time.Hour})
	// What the database of the lost hours had: two packs more, the second of them far ahead.
	var next int64
	w.Must(w.d.Pool.QueryRow(t.Context(), "SELECT next_pack FROM data_domain WHERE id = $1", w.domain).Scan(&next))
	for _, n := range []int64{next, next + 50} {
		w.Must(w.store.Put(t.Context(), store.Key(w.domain, n), []byte("of the lost hours")))
	}
	w.list()
	p, err := w.agent.snapshot(map[string][]byte{"f": noise(10)})
	w.Must(err)
	if p.n != next+51 {
		t.Errorf("the next pack has number %d, not %d", p.n, next+51)
	}
	w.Exec("UPDATE data_stray SET stored_at = stored_at - interval '100 days'")
	w.list()
	if !w.has(store.Key(w.domain, next)) || !w.has(store.Key(w.domain, next+50)) {
		t.Fatal("a pack of the lost hours is deleted at once")
	}
	w.Must(w.d.InTx(t.Context(), func(ctx context.Context, tx *db.Tx) error { return Restored(ctx, tx) }))
	if p, err = w.agent.snapshot(map[string][]byte{"f": noise(10)}); err != nil || p.n <= next+restoredGap {
		t.Fatalf("after a restore the next pack has number %d: %v", p.n, err)
	}
	// Nor are packs deleted that this state does not need, and the later one may: for as long.
	w.Exec(`UPDATE data_pack SET state = 'doomed', doomed_at = clock_timestamp() - interval '2 days',
		url_until = clock_timestamp() - interval '2 days' WHERE n = $1`, w.packs[0].n)
	if n, err := w.v.Collector.Sweep(t.Context()); n != 0 || err != nil || !w.has(w.key(0)) {
		t.Fatalf("%d packs are deleted after a restore: %v", n, err)
	}
	w.Exec("UPDATE data_check SET restored_at = restored_at - interval '11 days'")
	if n, err := w.v.Collector.Sweep(t.Context()); n != 1 || err != nil || w.has(w.key(0)) {
		t.Fatalf("%d packs are deleted: %v", n, err)
	}
	// The later state of the database is back: it knows the packs again.
	w.later(11)
	w.Exec(`INSERT INTO data_pack (domain_id, n, session_id, state, sha256, bytes, url_until, verified_at)
		SELECT domain_id, $1, session_id, 'live', sha256, 17, url_until, verified_at FROM data_pack LIMIT 1`, next)
	w.list()
	if !w.has(store.Key(w.domain, next)) {
		t.Fatal("a pack that is known again is deleted")
	}
	if w.has(store.Key(w.domain, next+50)) {
		t.Fatal("the other one is not deleted")
	}
}

// A round goes on where it was, after a restart and after the store did not answer; administrators are notified if that
// lasts. What a round has not seen any more is forgotten.
func TestTheListGoesOn(t *testing.T) {
	t.Parallel()
	w := newScrubbed(t, 1, Config{})
	w.Exec("UPDATE data_domain SET next_pack = 100000")
	var keys []string
	for n := range int64(2*listPage + 500) {
		keys = append(keys, store.Key(w.domain, n+10_000))
	}
	var from []string
	fails := ""
	w.store.list = func(after string) iter.Seq2[store.Listed, error] {
		from = append(from, after)
		return func(yield func(store.Listed, error) bool) {
			if after == fails && fails != "" {
				yield(store.Listed{}, errSilent)
				return
			}
			for _, k := range keys {
				if k > after && !yield(store.Listed{Key: k, Bytes: 1, At: time.Now()}, nil) {
					return
				}
			}
		}
	}
	fails = keys[listPage-1]
	run := func() {
		t.Helper()
		w.serveFrom(w.store) // a restart
		if _, err := w.v.Inventory.Take(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	run()
	run()
	if n := w.strays(); n != listPage {
		t.Fatalf("%d objects were compared", n)
	}
	contains(t, w.notices(true), 0)
	w.Exec("UPDATE data_check SET failing_at = failing_at - interval '61 minutes'")
	run()
	contains(t, w.notices(true), 1, "does not answer")
	fails = ""
	run()
	first, second := keys[listPage-1], keys[2*listPage-1]
	if want := []string{"", first, first, first, first, second}; !slices.Equal(from, want) {
		t.Errorf("listed from %q\nnot %q", from, want)
	}
	if n := w.strays(); n != len(keys) {
		t.Fatalf("%d objects were compared", n)
	}
	run() // the next round is not due
	if len(from) != 6 {
		t.Errorf("listed again at once: %q", from[6:])
	}
	keys = keys[:10]
	w.list()
	if n := w.strays(); n != len(keys) {
		t.Errorf("%d unknown objects are remembered", n)
	}
	// A store that does not list keys in order would be listed forever.
	w.Exec("UPDATE data_check SET list_ended = NULL")
	slices.Reverse(keys)
	run()
	var began bool
	w.Must(w.d.Pool.QueryRow(t.Context(), "SELECT list_began IS NOT NULL FROM data_check").Scan(&began))
	if !began {
		t.Error("a list without order counts as whole")
	}
}

// A key that the list has is no answer to whether the pack can be read.
func TestAListedPackMayStillBeDamaged(t *testing.T) {
	t.Parallel()
	w := newScrubbed(t, 1, Config{})
	w.change(0)
	w.readDue()
	w.scrub()
	w.list()
	if got := w.states(); !slices.Equal(got, []string{"damaged"}) {
		t.Fatalf("%q", got)
	}
	if got := fmt.Sprint(w.lost()); got != "[1]" {
		t.Errorf("the snapshots have lost %s", got)
	}
	if err := w.agent.commit(id.New[id.Snapshot](), w.packs[0]); code(err) != agentapi.VolumeMissing {
		t.Errorf("a commit that refers to a damaged pack: %v", err)
	}
	if !strings.Contains(strings.Join(w.notices(false), ""), "is damaged") {
		t.Errorf("%q", w.notices(false))
	}
}
