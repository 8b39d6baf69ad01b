package volume

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/data/chunk"
	"github.com/musterhq/muster/internal/data/store"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/testing/s3test"
)

// careless is a store that may not answer, and that shows of an object only its length, as some S3 stores do.
type careless struct {
	*store.Folder
	mu     sync.Mutex
	silent func(key string) bool // nil: it answers
	read   []string              // keys that were read
	list   func(after string) iter.Seq2[store.Listed, error]
}

var errSilent = errors.New("the store does not answer")

func (s *careless) is(key string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.silent != nil && s.silent(key)
}

func (s *careless) Head(ctx context.Context, key string) (store.Object, error) {
	if s.is(key) {
		return store.Object{}, errSilent
	}
	o, err := s.Folder.Head(ctx, key)
	o.Sum = [32]byte{}
	return o, err
}

func (s *careless) Read(ctx context.Context, key string, offset, length int64) (io.ReadCloser, error) {
	if s.is(key) {
		return nil, errSilent
	}
	s.mu.Lock()
	s.read = append(s.read, key)
	s.mu.Unlock()
	return s.Folder.Read(ctx, key, offset, length)
}

func (s *careless) List(ctx context.Context, prefix, after string) iter.Seq2[store.Listed, error] {
	if s.list != nil {
		return s.list(after)
	}
	return s.Folder.List(ctx, prefix, after)
}

// reads returns the keys that were read since it was called before.
func (s *careless) reads() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := s.read
	s.read = nil
	return out
}

// scrubbed is a world with a volume that has a snapshot for each of its packs, which no host has any more, and with an
// administrator.
type scrubbed struct {
	*world
	store  *careless
	vol    Volume
	domain id.DataDomain
	packs  []pack
	agent  *agent
}

func newScrubbed(t *testing.T, packs int, cfg Config) *scrubbed {
	t.Helper()
	w := &scrubbed{world: newWorld(t, cfg)}
	w.store = &careless{Folder: w.world.store}
	w.serveFrom(w.store)
	admin := w.SignUp("admin")
	w.Exec("UPDATE app_user SET admin = true WHERE id = $1", admin.User)
	w.Exec("INSERT INTO membership (org_id, user_id, role) VALUES ($1, $2, 'owner')", admin.Org, admin.User)
	w.vol = w.create("data")
	_, lease, err := w.rent(w.hosts[0], agentapi.MountRW, w.vol.ID)
	w.Must(err)
	w.agent = w.world.agent(w.hosts[0], lease, w.vol.ID)
	w.Must(w.agent.open(agentapi.MountRW))
	for i := range packs {
		p, err := w.agent.snapshot(map[string][]byte{fmt.Sprintf("f%d", i): noise(1000)})
		w.Must(err)
		w.packs = append(w.packs, p)
	}
	w.Must(w.d.Pool.QueryRow(t.Context(), "SELECT domain_id FROM volume WHERE id = $1", w.vol.ID).Scan(&w.domain))
	w.Exec("UPDATE data_check SET read_credit = -1000, read_through = clock_timestamp()")
	return w
}

func (w *scrubbed) key(i int) string { return store.Key(w.domain, w.packs[i].n) }

// remove makes the store lose a pack.
func (w *scrubbed) remove(i int) {
	w.t.Helper()
	w.Must(w.store.Delete(w.t.Context(), w.key(i)))
}

// change changes a byte of a pack in the store.
func (w *scrubbed) change(i int) {
	w.t.Helper()
	body := slices.Clone(w.packs[i].body)
	body[len(body)/2]++
	w.replace(i, body)
}

func (w *scrubbed) replace(i int, body []byte) {
	w.t.Helper()
	w.Must(w.store.Delete(w.t.Context(), w.key(i)))
	w.Must(w.store.Put(w.t.Context(), w.key(i), body))
}

// lookDue makes all packs due to be looked for.
func (w *scrubbed) lookDue() {
	w.Exec("UPDATE data_pack SET verified_at = clock_timestamp() - interval '8 days'")
}

// readDue makes one pack due to be read.
func (w *scrubbed) readDue() {
	w.Exec("UPDATE data_check SET read_credit = 1, read_through = clock_timestamp()")
}

// retryDue makes all packs due of which something was wrong.
func (w *scrubbed) retryDue() {
	w.Exec("UPDATE data_pack SET retry_at = clock_timestamp() WHERE retry_at IS NOT NULL")
}

func (w *scrubbed) scrub() int {
	w.t.Helper()
	n, err := w.v.Scrubber.Scrub(w.t.Context())
	w.Must(err)
	return n
}

// states returns what the database says of each pack.
func (w *scrubbed) states() []string {
	w.t.Helper()
	rows, err := w.d.Pool.Query(w.t.Context(), `SELECT CASE WHEN damaged THEN 'damaged' WHEN lost_at IS NOT NULL THEN 'lost'
		WHEN silent_at IS NOT NULL THEN 'silent' ELSE '' END FROM data_pack ORDER BY n`)
	w.Must(err)
	defer rows.Close()
	var out []string
	for rows.Next() {
		var s string
		w.Must(rows.Scan(&s))
		out = append(out, s)
	}
	return out
}

// notices returns the titles and texts of an organisation's notices, or of the administrators'.
func (w *scrubbed) notices(admins bool) []string {
	w.t.Helper()
	rows, err := w.d.Pool.Query(w.t.Context(), `SELECT title || ': ' || body FROM notice
		WHERE (org_id = $1) <> $2 AND (dedupe_key LIKE 'pack_%' OR dedupe_key LIKE 'store_%') ORDER BY created_at, id`,
		w.who.Org, admins)
	w.Must(err)
	defer rows.Close()
	var out []string
	for rows.Next() {
		var s string
		w.Must(rows.Scan(&s))
		out = append(out, s)
	}
	return out
}

// lost returns how many packs the snapshots have lost, oldest first.
func (w *scrubbed) lost() []int64 {
	w.t.Helper()
	snaps, err := w.v.Snapshots.List(w.t.Context(), w.who.Org, w.vol.ID)
	w.Must(err)
	var out []int64
	for _, s := range snaps {
		out = append([]int64{s.Lost}, out...)
	}
	return out
}

func contains(t *testing.T, texts []string, n int, words ...string) {
	t.Helper()
	if len(texts) != n {
		t.Fatalf("%d notices, not %d: %q", len(texts), n, texts)
	}
	for _, word := range words {
		if !strings.Contains(texts[n-1], word) {
			t.Errorf("%q is not in %q", word, texts[n-1])
		}
	}
}

// billed checks that what is billed from now on is want bytes, on the volume's page, too.
func (w *scrubbed) billed(want int64) {
	w.t.Helper()
	var bytes int64
	w.Must(w.d.Pool.QueryRow(w.t.Context(), "SELECT bytes FROM data_level WHERE domain_id = $1 ORDER BY from_at DESC "+
		"LIMIT 1", w.domain).Scan(&bytes))
	vol, err := w.v.Catalog.Get(w.t.Context(), w.who.Org, w.vol.ID)
	w.Must(err)
	if bytes != want || vol.PerHour != w.v.Meters.PerHour(want) {
		w.t.Errorf("%d bytes are billed, %s an hour, want %d", bytes, vol.PerHour, want)
	}
}

// A pack that the store lost is found and named: to the organisation, with the snapshots that need it and the last one
// that does not, and to administrators. It is not billed. A commit that refers to it has to send its chunks again. Once
// the store has it again, everything is whole, and billed.
func TestALostPackIsNamed(t *testing.T) {
	t.Parallel()
	w := newScrubbed(t, 3, Config{PricePerGBHour: 68_493_000_000})
	size := func(i int) int64 { return int64(len(w.packs[i].body)) }
	w.billed(size(0) + size(1) + size(2))
	w.remove(2)
	w.lookDue()
	w.scrub()
	if got := w.states(); !slices.Equal(got, []string{"", "", "lost"}) {
		t.Fatalf("%q", got)
	}
	w.billed(size(0) + size(1))
	number := fmt.Sprintf("pack %d is lost", w.packs[2].n)
	contains(t, w.notices(false), 1, "A part of the volume data is lost", number, "restored whole: 3.",
		"The last snapshot that is whole is 2", "muster volume restore data 2")
	contains(t, w.notices(true), 1, number, w.domain.String(), w.vol.ID.String(), w.who.Org.String(), "in snapshots 3")
	if got := w.lost(); !slices.Equal(got, []int64{0, 0, 1}) {
		t.Errorf("the snapshots have lost %d", got)
	}
	admin := w.who
	if _, err := w.v.Scrubber.Checked(t.Context(), admin); !fault.Is(err, fault.Forbidden) {
		t.Errorf("a renter reads what the checks have found: %v", err)
	}
	admin.Admin = true
	c, err := w.v.Scrubber.Checked(t.Context(), admin)
	w.Must(err)
	if len(c.Packs) != 1 || c.Packs[0].State != "lost" || c.Packs[0].Key != w.key(2) || len(c.Packs[0].Needed) != 1 ||
		c.Packs[0].Needed[0].Volume != w.vol.ID || !slices.Equal(c.Packs[0].Needed[0].Snapshots, []int64{3}) {
		t.Errorf("%+v", c)
	}
	if _, err := w.content(w.vol.ID, "f2"); !fault.Is(err, fault.Unavailable) {
		t.Errorf("reading it: %v", err)
	}
	next, err := w.agent.build(map[string][]byte{"g": noise(100)})
	w.Must(err)
	snap := id.New[id.Snapshot]()
	u, err := w.agent.grant(snap, next)
	w.Must(err)
	put(t, u, next.body)
	if err := w.agent.commit(snap, next, w.packs[2].n); code(err) != agentapi.VolumeMissing {
		t.Fatalf("a commit that refers to a lost pack: %v", err)
	}
	w.Must(w.agent.commit(snap, next))
	w.billed(size(0) + size(1) + int64(len(next.body)))

	w.retryDue()
	w.scrub() // it is still lost, which is no news
	contains(t, w.notices(false), 1)
	w.billed(size(0) + size(1) + int64(len(next.body)))
	w.Must(w.store.Put(t.Context(), w.key(2), w.packs[2].body))
	w.retryDue()
	w.scrub()
	if got := w.lost(); !slices.Equal(got, []int64{0, 0, 0, 0}) {
		t.Errorf("after the repair the snapshots have lost %d", got)
	}
	w.billed(size(0) + size(1) + size(2) + int64(len(next.body)))
}

// Bytes that were changed in the store, of which it shows nothing unless they are read, are found by reading them back
// and named. So are objects that were cut off.
func TestADamagedPackIsNamed(t *testing.T) {
	t.Parallel()
	w := newScrubbed(t, 3, Config{})
	w.change(0)
	w.lookDue()
	w.scrub()
	if got := w.states(); !slices.Equal(got, []string{"", "", ""}) {
		t.Fatalf("looking for it finds %q: this test is about reading", got)
	}
	for range 3 {
		w.readDue()
		w.scrub()
	}
	if got := w.states(); !slices.Equal(got, []string{"damaged", "", ""}) {
		t.Fatalf("%q", got)
	}
	number := fmt.Sprintf("pack %d is damaged", w.packs[0].n)
	contains(t, w.notices(false), 1, number, "restored whole: 1.", "The last snapshot that is whole is 3")
	contains(t, w.notices(true), 1, number)
	w.replace(1, w.packs[1].body[:10])
	w.replace(2, nil)
	for range 2 {
		w.readDue()
		w.scrub()
	}
	if got := w.states(); !slices.Equal(got, []string{"damaged", "damaged", "damaged"}) {
		t.Fatalf("%q", got)
	}
	if got := w.notices(false); !strings.Contains(got[len(got)-1], "No snapshot of the volume is whole") {
		t.Errorf("%q", got)
	}
	// That the store shows the object does not make it whole; that it returns the right bytes does.
	w.Must(w.d.Q.SetPacksVerified(t.Context(), w.domain, []int64{w.packs[0].n}))
	if got := w.lost(); !slices.Equal(got, []int64{1, 1, 1}) {
		t.Errorf("the snapshots have lost %d", got)
	}
	w.replace(0, w.packs[0].body)
	w.retryDue()
	w.scrub()
	if got := w.lost(); !slices.Equal(got, []int64{0, 1, 1}) {
		t.Errorf("after the repair the snapshots have lost %d", got)
	}
}

// Packs for which the store does not answer do not count as lost, and delay nothing: the packs after them are checked.
// Admins are notified if it lasts.
func TestASilentStoreStopsNothing(t *testing.T) {
	t.Parallel()
	const silentPacks = 2*silentInARow + 1
	w := newScrubbed(t, silentPacks+1, Config{})
	w.store.silent = func(key string) bool { return key != w.key(silentPacks) }
	w.remove(silentPacks)
	w.Exec("UPDATE data_pack SET verified_at = clock_timestamp() - interval '1 day' * (100 - n)") // in their order
	want := slices.Repeat([]string{"silent"}, silentPacks)
	for range 3 {
		w.scrub()
	}
	if got := w.states(); !slices.Equal(got, append(want, "lost")) {
		t.Fatalf("%q", got)
	}
	contains(t, w.notices(false), 1, fmt.Sprintf("pack %d is lost", w.packs[silentPacks].n))
	contains(t, w.notices(true), 1, "has lost packs")
	w.Exec("UPDATE data_pack SET silent_at = silent_at - interval '61 minutes' WHERE n = $1", w.packs[0].n)
	w.retryDue()
	for range 4 {
		w.scrub()
	}
	contains(t, w.notices(true), 2, "The store of volumes does not answer", "Nothing is known to be lost")
	var later time.Duration
	w.Must(w.d.Pool.QueryRow(t.Context(), "SELECT extract(epoch FROM retry_at - clock_timestamp())::bigint * 1000000000 "+
		"FROM data_pack WHERE n = $1", w.packs[0].n).Scan(&later))
	if later < 50*time.Minute || later > 2*time.Hour {
		t.Errorf("after an hour of silence it is tried again in %s", later)
	}
	w.store.silent = nil
	w.retryDue()
	w.scrub()
	if got := w.states(); !slices.Equal(got, append(make([]string, silentPacks), "lost")) {
		t.Fatalf("%q", got)
	}
	contains(t, w.notices(false), 1)
}

// The reading goes round: as many reads as there are packs come to each of them once, the oldest first, also when the
// store does not answer for some, and after restarts.
func TestReadingGoesRound(t *testing.T) {
	t.Parallel()
	w := newScrubbed(t, 6, Config{})
	w.Exec("UPDATE data_pack SET read_at = clock_timestamp() - interval '1 day' * n")
	w.store.silent = func(key string) bool { return key == w.key(4) }
	var got []string
	for range 2 {
		for range 6 {
			w.readDue()
			w.scrub()
			got = append(got, w.store.reads()...)
			w.serveFrom(w.store) // a restart
		}
	}
	var want []string
	for range 2 {
		for _, i := range []int{5, 3, 2, 1, 0} {
			want = append(want, w.key(i))
		}
	}
	if !slices.Equal(got[:10], want) {
		t.Errorf("read %q\nnot %q", got, want)
	}
	// Nothing is read before it is due.
	w.Exec("UPDATE data_check SET read_credit = -1000, read_through = clock_timestamp()")
	w.scrub()
	w.scrub()
	if got := w.store.reads(); len(got) > 0 {
		t.Errorf("read again at once: %q", got)
	}
}

// About 1 % of the stored bytes are read a day, whatever the size of packs; a standstill is not made up for at once.
func TestOnePercentADay(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ packs, size int64 }{{1, 100}, {50, chunk.PackSize}, {100_000, chunk.PackSize}} {
		total := c.packs * c.size
		credit, read := 0.0, int64(0)
		const days = 200
		for range days * 24 * 60 {
			for credit = readCredit(credit, total, time.Minute); credit > 0; credit -= float64(c.size) {
				read += c.size
			}
		}
		if off := read - total*days/100; off < -total/50-c.size || off > total/50+c.size {
			t.Errorf("%d packs of %d bytes: %d bytes were read in %d days", c.packs, c.size, read, days)
		}
	}
	if got := readCredit(0, 2_400_000, 1000*24*time.Hour); got < 999 || got > 1001 {
		t.Errorf("after a standstill %f bytes are read at once", got)
	}
	if got := readCredit(-500, 2_400_000, -time.Hour); got != -500 {
		t.Errorf("after the clock was set back: %f", got)
	}
}

// A pack that is collected while the scrub looks for it is not named as lost.
func TestACollectedPackIsNotLost(t *testing.T) {
	t.Parallel()
	w := newScrubbed(t, 2, Config{})
	w.remove(0)
	w.Exec("UPDATE data_pack SET state = 'deleting' WHERE n = $1", w.packs[0].n)
	w.Must(w.v.Scrubber.flawed(t.Context(), w.domain, lost, []int64{w.packs[0].n}))
	if got := w.states(); !slices.Equal(got, []string{"", ""}) {
		t.Fatalf("%q", got)
	}
	contains(t, append(w.notices(false), w.notices(true)...), 0)
}

// One replica at a time scrubs.
func TestOneReplicaScrubs(t *testing.T) {
	t.Parallel()
	w := newScrubbed(t, 1, Config{})
	w.lookDue()
	inside := 0
	w.store.silent = func(string) bool {
		n, err := New(w.d, w.world.store, w.cfg).Scrubber.Scrub(t.Context())
		if n != 0 || err != nil {
			t.Errorf("another replica looks for %d packs: %v", n, err)
		}
		inside++
		return false
	}
	if n := w.scrub(); n == 0 || inside == 0 {
		t.Errorf("%d packs, %d times", n, inside)
	}
}

// Of a real S3 store, what is lost, changed or cut off is found and named, and nothing while it is dead.
func TestScrubOfAnS3Store(t *testing.T) {
	t.Parallel()
	w := newScrubbed(t, 0, Config{})
	g := s3test.Start(t)
	s3, err := store.OpenS3(g.Config)
	w.Must(err)
	w.serveFrom(s3)
	for i := range 5 {
		p, err := w.agent.snapshot(map[string][]byte{"f": noise(1000 + i)})
		w.Must(err)
		w.packs = append(w.packs, p)
	}
	replace := func(i int, body []byte) {
		t.Helper()
		w.Must(s3.Delete(t.Context(), w.key(i)))
		if body != nil {
			w.Must(s3.Put(t.Context(), w.key(i), body))
		}
	}
	changed := slices.Clone(w.packs[1].body)
	changed[len(changed)/2]++
	replace(1, changed)
	replace(2, w.packs[2].body[:10])
	replace(3, []byte{})
	replace(4, nil)
	g.Kill()
	w.lookDue()
	w.readDue()
	w.scrub()
	_, err = w.v.Inventory.Take(t.Context())
	w.Must(err)
	contains(t, append(w.notices(false), w.notices(true)...), 0)
	g.Run()
	w.retryDue()
	w.scrub()
	for range 6 {
		w.readDue()
		w.scrub()
	}
	if got := w.states(); !slices.Equal(got, []string{"", "damaged", "damaged", "damaged", "lost"}) {
		t.Fatalf("%q", got)
	}
	if got := w.lost(); !slices.Equal(got, []int64{0, 1, 1, 1, 1}) {
		t.Errorf("the snapshots have lost %d", got)
	}
	w.list()
	if n := w.strays(); n != 0 {
		t.Errorf("%d unknown objects", n)
	}
}

// A sweep removes what a killed upload has left in the store's folder.
func TestASweepTidiesTheFolder(t *testing.T) {
	t.Parallel()
	w := newWorld(t, Config{})
	dir := t.TempDir()
	f, err := store.OpenFolder(dir, "http://store", noise(32))
	w.Must(err)
	w.serveFrom(f)
	left := filepath.Join(dir, "tmp", "put-1")
	w.Must(os.WriteFile(left, noise(10), 0o600))
	old := time.Now().Add(-2 * time.Hour)
	w.Must(os.Chtimes(left, old, old))
	_, err = w.v.Collector.Sweep(t.Context())
	w.Must(err)
	if _, err := os.Stat(left); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("it is still there: %v", err)
	}
}
