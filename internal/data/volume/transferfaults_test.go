package volume

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/musterhq/muster/internal/data/store"
	"github.com/musterhq/muster/internal/data/transfer"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/testing/s3test"
)

// onBadS3 makes the volumes of a world store in a real S3 store that has faults; direct has none.
func (w *world) onBadS3() (faults *s3test.Faults, direct *store.S3) {
	w.t.Helper()
	gateway := s3test.Start(w.t)
	faults = s3test.Behind(w.t, gateway.Config)
	direct, err := store.OpenS3(gateway.Config)
	w.Must(err)
	s, err := store.OpenS3(faults.Config)
	w.Must(err)
	w.store = nil
	w.serveFrom(s)
	return faults, direct
}

// within is a session that repeats requests for so long, and waits a second for a store that makes no progress.
func (w *world) within(patience time.Duration, vol id.Volume, session id.DataSession, snap id.Snapshot,
	direction string) *transfer.Session {
	w.t.Helper()
	s, _ := w.session(vol, session, snap, direction)
	s.Patience, s.Stall = patience, time.Second
	return s
}

const (
	soon = 700 * time.Millisecond // a session that is to fail
	late = time.Minute            // one that is to succeed
)

// named checks that an error names what a store does wrong, and shows neither its address nor a signature.
func named(t *testing.T, what string, err error, want string) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "http:") ||
		strings.Contains(err.Error(), "X-Amz") {
		t.Errorf("%s: %v, want %q", what, err, want)
	}
}

// An upload to a store that fails once succeeds. One to a store that goes on failing says why, and leaves the volume as
// it was. The next attempt, after the store is well again, succeeds, and the volume has all of it.
func TestAnUploadToABadStore(t *testing.T) {
	t.Parallel()
	w := newWorld(t, Config{})
	faults, _ := w.onBadS3()
	dir := t.TempDir()
	w.write(dir, map[string][]byte{"f": noise(3 << 20), "sub/g": noise(1000)})
	for what, c := range map[string]struct {
		do   s3test.Fault
		want string
	}{
		"busy":    {s3test.Answers(503, "SlowDown"), "SlowDown"},
		"full":    {s3test.Answers(507, "InsufficientStorage"), "the store is full"},
		"refuses": {s3test.Answers(403, "AccessDenied"), "AccessDenied"},
		"hangs":   {faults.Hangs(), "no progress"},
		"forgets": {s3test.Forgets, "has not kept"},
		"slow":    {s3test.Slow(100 * time.Millisecond), ""},
	} {
		once := w.create("once-" + strings.ReplaceAll(what, " ", "-"))
		hits := faults.Times(1, s3test.Puts, c.do)
		s := w.within(late, once.ID, id.New[id.DataSession](), id.New[id.Snapshot](), Upload)
		if _, err := (&transfer.Upload{Session: s, From: dir}).Run(t.Context()); err != nil || hits() != 1 {
			t.Errorf("%s, once: %v, after %d", what, err, hits())
		}
		faults.Heal()
		if c.want == "" {
			continue
		}
		vol := w.create("always-" + strings.ReplaceAll(what, " ", "-"))
		session, snap := id.New[id.DataSession](), id.New[id.Snapshot]()
		path := filepath.Join(t.TempDir(), "journal")
		attempt := func(patience time.Duration) (transfer.Uploaded, error) {
			var head struct{ ID string }
			j, _, err := transfer.OpenJournal(path, struct{ ID string }{session.String()}, &head)
			w.Must(err)
			defer j.Close()
			s := w.within(patience, vol.ID, session, snap, Upload)
			return (&transfer.Upload{Session: s, From: dir, Journal: j}).Run(t.Context())
		}
		if what == "hangs" {
			c.do = faults.Hangs() // Heal ended those before
		}
		faults.When(s3test.Puts, c.do)
		_, err := attempt(soon)
		named(t, what, err, c.want)
		if got, err := w.v.Catalog.Get(t.Context(), w.who.Org, vol.ID); err != nil || got.HeadSeq != 0 {
			t.Errorf("%s: %+v, %v", what, got, err)
		}
		faults.Heal()
		if out, err := attempt(late); err != nil || out.Seq != 1 {
			t.Errorf("%s, healed: %+v, %v", what, out, err)
			continue
		}
		to := t.TempDir()
		s = w.within(late, vol.ID, id.New[id.DataSession](), id.Snapshot{}, Download)
		_, err = (&transfer.Download{Session: s, From: "/", To: to}).Run(t.Context())
		w.Must(err)
		same(t, what, digest(t, to), digest(t, dir))
	}
}

// A download from a store that fails once succeeds. One from a store that goes on failing says why, and no file has its
// name that is not whole. The next attempt goes on.
func TestADownloadFromABadStore(t *testing.T) {
	t.Parallel()
	w := newWorld(t, Config{})
	faults, _ := w.onBadS3()
	dir := t.TempDir()
	w.write(dir, map[string][]byte{"f": noise(3 << 20), "sub/g": noise(1000)})
	vol := w.create("data")
	_, err := w.upload(vol.ID, dir)
	w.Must(err)
	want := digest(t, dir)
	for what, c := range map[string]struct {
		do   s3test.Fault
		want string
	}{
		"busy":    {s3test.Answers(503, "SlowDown"), "SlowDown"},
		"refuses": {s3test.Answers(403, "AccessDenied"), "AccessDenied"},
		"lost":    {s3test.Answers(404, "NoSuchKey"), "lost"},
		"hangs":   {faults.Hangs(), "no progress"},
		"cut off": {s3test.Cuts, "cuts off"},
		"a bit":   {s3test.Flips(), "changed"},
		"short":   {s3test.Shortens(), "cuts off"},
		"slow":    {s3test.Slow(100 * time.Millisecond), ""},
	} {
		to := t.TempDir()
		hits := faults.Times(1, s3test.Gets, c.do)
		s := w.within(late, vol.ID, id.New[id.DataSession](), id.Snapshot{}, Download)
		if _, err := (&transfer.Download{Session: s, From: "/", To: to}).Run(t.Context()); err != nil || hits() != 1 {
			if what != "lost" || !fault.Is(err, fault.Unavailable) { // a store's word that it has lost something ends the copy
				t.Errorf("%s, once: %v, after %d", what, err, hits())
			}
		} else {
			same(t, what+", once", digest(t, to), want)
		}
		faults.Heal()
		if c.want == "" {
			continue
		}
		if what == "hangs" {
			c.do = faults.Hangs() // Heal ended those before
		}
		to = t.TempDir()
		faults.When(s3test.Gets, c.do)
		s = w.within(soon, vol.ID, id.New[id.DataSession](), id.Snapshot{}, Download)
		_, err := (&transfer.Download{Session: s, From: "/", To: to}).Run(t.Context())
		named(t, what, err, c.want)
		for _, name := range []string{"f", "sub/g"} {
			if _, err := os.Stat(filepath.Join(to, name)); err == nil {
				t.Errorf("%s: %s has its name", what, name)
			}
		}
		faults.Heal()
		s = w.within(late, vol.ID, id.New[id.DataSession](), id.Snapshot{}, Download)
		_, err = (&transfer.Download{Session: s, From: "/", To: to}).Run(t.Context())
		w.Must(err)
		same(t, what+", healed", digest(t, to), want)
	}
}

// A store that goes back to an earlier state answers for the packs of the last snapshot with those of the one before:
// sealed with the same key, with chunks as long and at the same places. Neither a download nor an upload takes them for
// what they are not: both name it, nothing that is here or in the volume changes, and both succeed once the store is as
// it was.
func TestAStoreWithOldVersions(t *testing.T) {
	t.Parallel()
	w := newWorld(t, Config{})
	faults, direct := w.onBadS3()
	packs := func() (keys []string) {
		for o, err := range direct.List(t.Context(), store.Packs, "") {
			w.Must(err)
			keys = append(keys, o.Key)
		}
		slices.SortStableFunc(keys, func(a, b string) int { return len(a) - len(b) }) // 10 after 9
		return keys
	}
	dir, to := t.TempDir(), t.TempDir()
	vol := w.create("data")
	w.write(dir, map[string][]byte{"state": noise(1000), "sub/g": noise(1000)})
	_, err := w.upload(vol.ID, dir)
	w.Must(err)
	first := packs()
	_, err = w.download(vol.ID, "/", to)
	w.Must(err)
	before := digest(t, to)

	second := noise(1000)
	slices.Reverse(second)
	small := noise(1000)
	slices.Reverse(small)
	w.write(dir, map[string][]byte{"state": second, "sub/g": small})
	out, err := w.upload(vol.ID, dir)
	if err != nil || out.Seq != 2 {
		t.Fatalf("%+v, %v", out, err)
	}
	old := map[string]string{}
	for _, key := range packs() {
		if i := len(old); !slices.Contains(first, key) && i < len(first) {
			old[key] = first[i]
		}
	}
	if len(old) != len(first) {
		t.Fatalf("%d packs, then %d others", len(first), len(old))
	}
	refused := func(what string, some map[string]string, want string) {
		t.Helper()
		hits := faults.When(s3test.Gets, s3test.Older(t, direct, some))
		s := w.within(soon, vol.ID, id.New[id.DataSession](), id.Snapshot{}, Download)
		_, err := (&transfer.Download{Session: s, From: "/", To: to}).Run(t.Context())
		named(t, what+", download", err, want)
		here := digest(t, to)
		maps.DeleteFunc(here, func(name, _ string) bool { return strings.HasSuffix(name, ".muster-part") })
		same(t, what+", after the refusal", here, before)
		if hits() == 0 {
			t.Errorf("%s: nothing was read", what)
		}
	}
	for key, of := range old {
		one, err := direct.Head(t.Context(), key)
		w.Must(err)
		other, err := direct.Head(t.Context(), of)
		w.Must(err)
		want := "changed"
		if other.Bytes < one.Bytes {
			want = "cuts off"
		}
		refused(key, map[string]string{key: of}, want)
		faults.Heal()
	}
	refused("all", old, "changed")
	s := w.within(soon, vol.ID, id.New[id.DataSession](), id.New[id.Snapshot](), Upload)
	other := t.TempDir()
	w.write(other, map[string][]byte{"more": noise(10)})
	_, err = (&transfer.Upload{Session: s, From: other, To: []string{"sub"}}).Run(t.Context())
	named(t, "an upload", err, "changed")
	if got, err := w.v.Catalog.Get(t.Context(), w.who.Org, vol.ID); err != nil || got.HeadSeq != 2 {
		t.Errorf("after the upload: %+v, %v", got, err)
	}
	faults.Heal()
	_, err = w.download(vol.ID, "/", to)
	w.Must(err)
	same(t, "as it was", digest(t, to), digest(t, dir))
}
