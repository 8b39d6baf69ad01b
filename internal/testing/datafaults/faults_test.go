package datafaults

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/musterhq/muster/agent/storage/scratch"
	agentvolume "github.com/musterhq/muster/agent/storage/volume"
	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/data/store"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/testing/s3test"
)

// A snapshot waits for a store that does not take its packs, says why, and is committed once the store is well. Until
// then the volume's last snapshot is the one before.
func TestASnapshotWaitsForTheStore(t *testing.T) {
	w := newWorld(t)
	w.write("first", 3<<20, 1)
	if _, err := w.snapshot(); err != nil {
		t.Fatal(err)
	}
	for i, c := range []struct {
		name string
		when func(*http.Request) bool
		do   s3test.Fault
		want string
	}{
		{"busy", s3test.Puts, s3test.Answers(503, "SlowDown"),
			"the store is overloaded: it answers a write with status 503 SlowDown"},
		{"full", s3test.Puts, s3test.Answers(507, "InsufficientStorage"),
			"the store is full: it answers a write with status 507"},
		{"quota", s3test.Puts, s3test.Answers(403, "QuotaExceeded"),
			"the store is full: it answers a write with status 403 QuotaExceeded"},
		{"refuses", s3test.Puts, s3test.Answers(403, "AccessDenied"), "the store refuses a signed request"},
		{"broken", s3test.Puts, s3test.Answers(500, "InternalError"),
			"the store fails: it answers a write with status 500 InternalError"},
		{"cut off", s3test.Puts, func(http.ResponseWriter, *http.Request, http.Handler) { panic(http.ErrAbortHandler) },
			"the store does not answer"},
		{"does not look", s3test.Heads, s3test.Answers(503, ""), "the store does not answer"},
	} {
		before := w.head()
		w.write(c.name, 2<<20, byte(10+i))
		w.faults.When(c.when, c.do)
		done := make(chan error, 1)
		go func() {
			_, err := w.snapshot()
			done <- err
		}()
		w.shown(w.a, c.want)
		select {
		case err := <-done:
			t.Fatalf("%s: the snapshot has ended: %v", c.name, err)
		default:
		}
		w.Must(w.a.Report(t.Context(), agentapi.VolumeReport{Problem: w.a.Trouble()}))
		if x, err := w.v.Catalog.Get(t.Context(), w.who.Org, w.vol); err != nil || x.HeadSeq != before {
			t.Errorf("%s: %+v, %v", c.name, x, err)
		}
		w.faults.Heal()
		if err := <-done; err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		if got := w.a.Trouble(); got != "" || w.head() != before+1 {
			t.Errorf("%s: the store is well, and the volume is at %d of %d and says %q", c.name, w.head(), before+1, got)
		}
		w.same()
	}
}

// A store that acknowledges packs and does not keep them, or that shows another length, is found out by the commit: the
// chunks are sent again, and what is committed is there.
func TestAStoreThatForgetsIsFoundOutByTheCommit(t *testing.T) {
	w := newWorld(t)
	w.write("first", 1<<20, 1)
	if _, err := w.snapshot(); err != nil {
		t.Fatal(err)
	}
	w.write("forgotten", 3<<20, 2)
	forgotten := w.faults.Times(2, s3test.Puts, s3test.Forgets)
	if _, err := w.snapshot(); err != nil || forgotten() != 2 {
		t.Errorf("%v, after %d packs that were forgotten", err, forgotten())
	}
	w.same()
	w.faults.Heal()

	// If it never keeps one, the snapshot is given up, and the one before stays; the next one is whole.
	before := w.head()
	w.write("never", 3<<20, 3)
	w.faults.When(s3test.Puts, s3test.Forgets)
	_, err := w.snapshot()
	var refused *agentapi.VolumeError
	if !errors.As(err, &refused) || refused.Code != agentapi.VolumeMissing || w.head() != before {
		t.Errorf("at %d of %d: %v", w.head(), before, err)
	}
	w.faults.Heal()
	if _, err := w.snapshot(); err != nil || w.head() != before+1 {
		t.Errorf("at %d of %d: %v", w.head(), before+1, err)
	}
	w.same()

	w.write("measured", 3<<20, 4)
	measured := w.faults.Times(1, s3test.Heads, s3test.Measures(17))
	if _, err := w.snapshot(); err != nil || measured() != 1 {
		t.Errorf("%v", err)
	}
	w.same()
}

// A restore survives what passes, names what does not, and never leaves half a volume that counts as restored.
func TestARestoreFromABadStore(t *testing.T) {
	w := newWorld(t)
	w.write("f", 5<<20, 1)
	w.write("g", 100, 2)
	if _, err := w.snapshot(); err != nil {
		t.Fatal(err)
	}
	whole := func(root string) {
		t.Helper()
		for name, sum := range w.files {
			b, err := os.ReadFile(filepath.Join(scratch.Data(root), name))
			if err != nil || sha256.Sum256(b) != sum {
				t.Errorf("%s: %d bytes: %v", name, len(b), err)
			}
		}
	}
	open := func() (*agentvolume.Volume, string) {
		t.Helper()
		root := w.newRoot()
		a, err := agentvolume.Open(t.Context(), w.config(root))
		w.Must(err)
		t.Cleanup(func() { a.Close() })
		return a, root
	}
	for name, do := range map[string]s3test.Fault{
		"busy": s3test.Answers(503, "SlowDown"), "refuses": s3test.Answers(403, "AccessDenied"), "cut off": s3test.Cuts,
		"a bit": s3test.Flips(), "short": s3test.Shortens(), "lost": s3test.Answers(404, "NoSuchKey"),
		"slow": s3test.Slow(50 * time.Millisecond),
	} {
		a, root := open()
		hits := w.faults.Times(1, s3test.Gets, do)
		if err := a.Restore(t.Context(), nil); err != nil || !a.Restored() || a.Trouble() != "" || hits() != 1 {
			t.Errorf("%s, once: %v, %q", name, err, a.Trouble())
		}
		whole(root)
		w.faults.Heal()
	}
	for name, c := range map[string]struct {
		do   s3test.Fault
		want string
	}{
		"lost":  {s3test.Answers(404, "NoSuchKey"), "cannot be read: the store does not have the pack"},
		"a bit": {s3test.Flips(), "the store has other bytes in pack"},
	} {
		a, root := open()
		w.faults.When(s3test.Gets, c.do)
		err := a.Restore(t.Context(), nil)
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "http") || a.Restored() {
			t.Errorf("%s, always: %v", name, err)
		}
		w.faults.Heal()
		w.Must(a.Reset())
		w.Must(a.Restore(t.Context(), nil)) // as the process for volumes does
		whole(root)
	}
}

// The scrub does not call lost what a store does not show for a while, names what it has lost or changed, and takes
// that back when it is there again. The collection goes on after a store that does not delete.
func TestTheScrubAndTheCollectionOfABadStore(t *testing.T) {
	w := newWorld(t)
	w.write("f", 1<<20, 1)
	if _, err := w.snapshot(); err != nil {
		t.Fatal(err)
	}
	flawed := func() (n int) {
		t.Helper()
		w.Must(w.DB.Pool.QueryRow(t.Context(), "SELECT count(*) FROM data_pack WHERE lost_at IS NOT NULL").Scan(&n))
		return n
	}
	due := func() {
		t.Helper()
		w.Exec("UPDATE data_check SET read_credit = 1e9, read_through = clock_timestamp()")
		w.Exec(`UPDATE data_pack SET verified_at = clock_timestamp() - interval '8 days', retry_at = retry_at - interval '2 days'
			WHERE state = 'live'`)
	}
	for _, c := range []struct {
		name   string
		when   func(*http.Request) bool
		do     s3test.Fault
		flawed bool
	}{
		{"away", s3test.Any, s3test.Answers(503, "SlowDown"), false},
		{"refuses", s3test.Any, s3test.Answers(403, "AccessDenied"), false},
		{"lists nothing", s3test.Lists, s3test.ListsNothing, false},
		{"cut off", s3test.Gets, s3test.Cuts, false},
		{"lost", s3test.Any, s3test.Answers(404, "NoSuchKey"), true},
		{"a bit", s3test.Gets, s3test.Flips(), true},
	} {
		due()
		w.faults.When(c.when, c.do)
		_, _ = w.v.Inventory.Take(t.Context()) // its errors are for the log of the server
		_, _ = w.v.Scrubber.Scrub(t.Context())
		if n := flawed(); (n > 0) != c.flawed {
			t.Errorf("%s: %d packs are flawed", c.name, n)
		}
		w.faults.Heal()
		due()
		if _, err := w.v.Scrubber.Scrub(t.Context()); err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
		if n := flawed(); n > 0 {
			t.Errorf("%s: %d packs are still flawed", c.name, n)
		}
		w.same()
	}

	w.write("f", 1<<20, 2)
	if _, err := w.snapshot(); err != nil {
		t.Fatal(err)
	}
	w.Must(w.v.Snapshots.Delete(t.Context(), w.who, w.vol, 1))
	w.Must(w.a.EndSession(t.Context(), 0))
	w.Exec("UPDATE data_pack SET url_until = clock_timestamp()")
	for _, code := range []int{503, 403} {
		hits := w.faults.When(func(r *http.Request) bool { return r.Method == http.MethodDelete },
			s3test.Answers(code, "AccessDenied"))
		w.eventually("a deletion that fails", func() bool {
			n, err := w.v.Collector.Sweep(t.Context())
			if n > 0 {
				t.Errorf("%d: %d packs were deleted", code, n)
			}
			return err != nil && hits() > 0
		})
		w.faults.Heal()
	}
	w.eventually("the collection", func() bool {
		_, err := w.v.Collector.Sweep(t.Context())
		w.Must(err)
		n := 0
		w.Must(w.DB.Pool.QueryRow(t.Context(), "SELECT count(*) FROM data_pack WHERE state <> 'live'").Scan(&n))
		return n == 0
	})
	w.same()
	for o, err := range w.direct.List(t.Context(), store.Packs, "") {
		w.Must(err)
		var rows int
		w.Must(w.DB.Pool.QueryRow(t.Context(), `SELECT count(*) FROM data_pack WHERE $1 = 'd/' || $2::text || '/' || n`,
			o.Key, w.domain.String()).Scan(&rows))
		if rows != 1 {
			t.Errorf("%s is in the store, and in no row", o.Key)
		}
	}
}

// While the store hangs, neither memory nor goroutines grow, whatever is requested; a caller that goes away leaves
// nothing; and people who look at files get an answer.
func TestAStoreThatHangs(t *testing.T) {
	w := newWorld(t)
	w.write("f", 40<<20, 1)
	w.faults.When(s3test.Puts, w.faults.Hangs())
	done := make(chan error, 1)
	go func() {
		_, err := w.snapshot()
		done <- err
	}()
	w.eventually("the upload hangs", func() bool { return w.a.Upload().Total >= 20<<20 })
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	if m.HeapAlloc > 256<<20 {
		t.Errorf("%d MiB are in memory while 40 MiB wait", m.HeapAlloc>>20)
	}
	before := runtime.NumGoroutine()
	w.faults.Heal()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	w.same()
	w.faults.When(s3test.Gets, s3test.Answers(503, "SlowDown"))
	tree, err := w.v.Files.Tree(t.Context(), w.who.Org, w.vol, 0)
	w.Must(err)
	if _, _, err = tree.List(t.Context(), "", "", 1); !fault.Is(err, fault.Unavailable) {
		t.Errorf("a list of files: %v", err)
	}
	w.faults.Heal()
	w.eventually("the end of all requests", func() bool { return runtime.NumGoroutine() <= before+8 })
}

// A store that goes back answers for the packs of the last snapshot with those of the one before: sealed with the same
// key, and as long. A restore does not take them for what they are not, and names it; the scrub finds each of them, and
// takes that back when the store is as it was. Nothing is lost.
func TestAStoreWithOldVersions(t *testing.T) {
	w := newWorld(t)
	keys := func() (out []string) {
		for o, err := range w.direct.List(t.Context(), store.Packs, "") {
			w.Must(err)
			out = append(out, o.Key)
		}
		slices.SortStableFunc(out, func(a, b string) int { return len(a) - len(b) }) // 10 after 9
		return out
	}
	w.write("state", 1000, 1)
	if _, err := w.snapshot(); err != nil {
		t.Fatal(err)
	}
	first := keys()
	w.write("state", 1000, 2)
	if _, err := w.snapshot(); err != nil {
		t.Fatal(err)
	}
	old := map[string]string{}
	for _, key := range keys() {
		if i := len(old); !slices.Contains(first, key) && i < len(first) {
			old[key] = first[i]
		}
	}
	if len(old) != len(first) {
		t.Fatalf("%d packs, then %d others", len(first), len(old))
	}
	root := w.newRoot()
	a, err := agentvolume.Open(t.Context(), w.config(root))
	w.Must(err)
	t.Cleanup(func() { a.Close() })
	w.faults.When(s3test.Gets, s3test.Older(t, w.direct, old))
	err = a.Restore(t.Context(), nil)
	if err == nil || !strings.Contains(err.Error(), "the store has other bytes in pack") || a.Restored() {
		t.Errorf("a restore: %v", err)
	}
	scrub := func(want int) { // it reads a few packs each time
		t.Helper()
		w.eventually(fmt.Sprintf("the scrub names %d packs", want), func() bool {
			w.Exec("UPDATE data_check SET read_credit = 1e9, read_through = clock_timestamp()")
			w.Exec("UPDATE data_pack SET retry_at = retry_at - interval '2 days' WHERE state = 'live'")
			_, _ = w.v.Scrubber.Scrub(t.Context()) // its errors are for the log of the server
			n := 0
			w.Must(w.DB.Pool.QueryRow(t.Context(), "SELECT count(*) FROM data_pack WHERE lost_at IS NOT NULL").Scan(&n))
			return n == want
		})
	}
	scrub(len(old))
	w.faults.Heal()
	scrub(0)
	w.Must(a.Reset())
	w.Must(a.Restore(t.Context(), nil))
	for name, sum := range w.files {
		b, err := os.ReadFile(filepath.Join(scratch.Data(root), name))
		if err != nil || sha256.Sum256(b) != sum {
			t.Errorf("%s: %d bytes: %v", name, len(b), err)
		}
	}
	w.same()
}
