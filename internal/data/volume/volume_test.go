package volume

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/data/store"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/idem"
)

// content returns a file of a volume's last snapshot, as its renter reads it.
func (w *world) content(vol id.Volume, path string) (string, error) {
	tree, err := w.v.Files.Tree(w.t.Context(), w.who.Org, vol, 0)
	if err != nil {
		return "", err
	}
	var out bytes.Buffer
	err = tree.Send(w.t.Context(), path, func(File) io.Writer { return &out })
	return out.String(), err
}

// A volume follows its renter: what one host committed is what the next one restores, and the first one, which comes
// back late, changes nothing any more.
func TestAVolumeFollows(t *testing.T) {
	t.Parallel()
	w := newWorld(t, Config{})
	vol := w.create("data")
	cl, lease, err := w.rent(w.hosts[0], agentapi.MountRW, vol.ID)
	w.Must(err)
	old := w.agent(w.hosts[0], lease, vol.ID)
	w.Must(old.open(agentapi.MountRW))
	if old.base != nil || old.head != 0 {
		t.Fatalf("an empty volume has a base: %+v", old.base)
	}
	first, err := old.snapshot(map[string][]byte{"a.txt": []byte("one")})
	w.Must(err)
	if got, err := w.content(vol.ID, "a.txt"); got != "one" {
		t.Fatalf("%q %v", got, err)
	}
	late, err := old.build(map[string][]byte{"a.txt": []byte("two")})
	w.Must(err)
	snap := id.New[id.Snapshot]()
	url, err := old.grant(snap, late)
	w.Must(err)

	// The cluster's host is lost, and the volume is rented elsewhere.
	if _, _, err := w.rent(w.hosts[1], agentapi.MountRW, vol.ID); !fault.Is(err, fault.Conflict) {
		t.Fatalf("a second writer: %v", err)
	}
	w.release(cl)
	if _, _, err := w.rent(w.hosts[1], agentapi.MountRW, vol.ID); !fault.Is(err, fault.Conflict) {
		t.Fatalf("a second writer while the first one may still flush: %v", err)
	}
	w.Exec("UPDATE node SET state = 'lost' WHERE cluster_id = $1", cl)
	_, lease, err = w.rent(w.hosts[1], agentapi.MountRW, vol.ID)
	w.Must(err)
	next := w.agent(w.hosts[1], lease, vol.ID)
	w.Must(next.open(agentapi.MountRW))
	if next.base == nil || next.base.Seq != 1 || next.base.Root.Pack != first.n {
		t.Fatalf("the base is %+v", next.base)
	}
	read := &agentapi.ReadPacks{Packs: []int64{first.n}}
	r, err := next.send(agentapi.VolumeRequest{Op: agentapi.VolumeRead, Read: read})
	w.Must(err)
	answer, err := http.Get(r.Read.Packs[0].URL)
	w.Must(err)
	var body bytes.Buffer
	_, _ = body.ReadFrom(answer.Body)
	answer.Body.Close()
	if answer.StatusCode != 200 || !bytes.Equal(body.Bytes(), first.body) {
		t.Fatalf("the pack reads as %d bytes, status %d", body.Len(), answer.StatusCode)
	}

	// The old host returns: nothing it sends has an effect.
	if status := put(t, url, []byte("x")); status != http.StatusBadRequest {
		t.Errorf("another body under an old URL: %d", status)
	}
	_ = put(t, url, late.body) // stored, and swept
	for what, err := range map[string]error{
		"commit":  old.commit(snap, late),
		"open":    old.open(agentapi.MountRW),
		"reserve": func() error { _, err := old.build(nil); return err }(),
		"grant":   func() error { _, err := old.grant(snap, late); return err }(),
	} {
		if code(err) != agentapi.VolumeFenced {
			t.Errorf("%s by the old host: %v", what, err)
		}
	}
	_, err = next.snapshot(map[string][]byte{"a.txt": []byte("three")})
	w.Must(err)
	if got, err := w.content(vol.ID, "a.txt"); got != "three" {
		t.Fatalf("%q %v", got, err)
	}
}

// The crash table: whatever a host sends again, or does not send at all, no commit names a pack that is not stored.
func TestCommits(t *testing.T) {
	t.Parallel()
	w := newWorld(t, Config{})
	vol := w.create("data")
	_, lease, err := w.rent(w.hosts[0], agentapi.MountRW, vol.ID)
	w.Must(err)
	a := w.agent(w.hosts[0], lease, vol.ID)
	w.Must(a.open(agentapi.MountRW))
	p, err := a.build(map[string][]byte{"f": noise(1000)})
	w.Must(err)
	snap := id.New[id.Snapshot]()
	if err := a.commit(snap, p); code(err) != agentapi.VolumeMissing {
		t.Fatalf("a commit of a pack that was not granted: %v", err)
	}
	url, err := a.grant(snap, p)
	w.Must(err)
	if err := a.commit(snap, p); code(err) != agentapi.VolumeMissing {
		t.Fatalf("a commit of a pack that was not sent: %v", err)
	}
	other := p
	other.body = append(bytes.Clone(p.body), 0)
	if _, err := a.grant(snap, other); code(err) != agentapi.VolumeMalformed {
		t.Fatalf("a second content of one number: %v", err)
	}
	foreign := p
	foreign.n += 1000
	if _, err := a.grant(snap, foreign); code(err) != agentapi.VolumeMalformed {
		t.Fatalf("a number that was not reserved: %v", err)
	}
	if status := put(t, url, p.body); status != 200 {
		t.Fatalf("PUT: %d", status)
	}
	if status := put(t, url, p.body); status != http.StatusPreconditionFailed {
		t.Fatalf("the same PUT again: %d", status)
	}
	w.Must(a.commit(snap, p))
	a.head = 0 // the answer was lost
	w.Must(a.commit(snap, p))
	if a.head != 1 {
		t.Fatalf("the same commit again is %d", a.head)
	}
	u, err := a.grant(snap, p)
	w.Must(err)
	if !u.Stored {
		t.Fatalf("a pack that is stored is granted again: %+v", u)
	}
	stale := *a.request(id.New[id.Snapshot](), p)
	stale.BaseSeq = 0
	if _, err := a.send(agentapi.VolumeRequest{Op: agentapi.VolumeCommit, Commit: &stale}); code(err) !=
		agentapi.VolumeBaseMoved {
		t.Fatalf("a commit on another base: %v", err)
	}
	// The agent starts again: the same session goes on from its last commit.
	session := a.session
	w.Must(a.open(agentapi.MountRW))
	if a.session != session || a.base == nil || a.base.Seq != 1 {
		t.Fatalf("after a restart: %s %+v", a.session, a.base)
	}
	// A host that is not the lease's gets nothing.
	thief := *a
	thief.host = w.hosts[1]
	if _, err := thief.build(nil); code(err) != agentapi.VolumeNotFound {
		t.Fatalf("another host: %v", err)
	}
	if err := thief.open(agentapi.MountRW); code(err) != agentapi.VolumeNotFound {
		t.Fatalf("another host opens: %v", err)
	}
	// Once the time to flush is over, the run of an ended lease is fenced.
	w.Exec("UPDATE lease SET ended_at = clock_timestamp() - interval '29 minutes' WHERE id = $1", lease)
	if _, err := a.build(nil); err != nil {
		t.Fatalf("while it may flush: %v", err)
	}
	w.Exec("UPDATE lease SET ended_at = clock_timestamp() - interval '31 minutes' WHERE id = $1", lease)
	if _, err := a.build(nil); code(err) != agentapi.VolumeFenced {
		t.Fatalf("after the time to flush: %v", err)
	}
	w.Exec("UPDATE lease SET ended_at = NULL WHERE id = $1", lease)
	// The next epoch fences this one.
	w.Exec("UPDATE lease SET epoch = 2 WHERE id = $1", lease)
	if err := a.commit(id.New[id.Snapshot](), p); code(err) != agentapi.VolumeFenced {
		t.Fatalf("an old epoch: %v", err)
	}
}

// A snapshot that was requested is committed under the id that the renter was given.
func TestRequestedSnapshot(t *testing.T) {
	t.Parallel()
	w := newWorld(t, Config{})
	vol := w.create("data")
	if _, err := w.v.Snapshots.Request(t.Context(), w.who, vol.ID); !fault.Is(err, fault.Conflict) {
		t.Fatalf("the volume has no writer: %v", err)
	}
	_, lease, err := w.rent(w.hosts[0], agentapi.MountRW, vol.ID)
	w.Must(err)
	snap, err := w.v.Snapshots.Request(t.Context(), w.who, vol.ID)
	w.Must(err)
	if again, err := w.v.Snapshots.Request(t.Context(), w.who, vol.ID); err != nil || again != snap {
		t.Fatalf("%s then %s: %v", snap, again, err)
	}
	a := w.agent(w.hosts[0], lease, vol.ID)
	w.Must(a.open(agentapi.MountRW))
	p, err := a.build(map[string][]byte{"f": []byte("x")})
	w.Must(err)
	u, err := a.grant(snap, p)
	w.Must(err)
	put(t, u, p.body)
	w.Must(a.commit(snap, p))
	if next, err := w.v.Snapshots.Request(t.Context(), w.who, vol.ID); err != nil || next == snap {
		t.Fatalf("the next request has the same id: %v", err)
	}
	_, err = a.send(agentapi.VolumeRequest{Op: agentapi.VolumeReports, Report: &agentapi.VolumeReport{PendingBytes: 5,
		FlushETAS: 60, Problem: "slow\x1b[2J"}})
	w.Must(err)
	got, err := w.v.Catalog.Get(t.Context(), w.who.Org, vol.ID)
	w.Must(err)
	if got.Pending != 5 || got.ETA != time.Minute || got.Problem != "slow [2J" || got.DurableTo == nil {
		t.Fatalf("%+v", got)
	}
}

// Deleting ends the level at once, and the packs are gone after the grace; a clone keeps what it shares.
func TestDeletion(t *testing.T) {
	t.Parallel()
	w := newWorld(t, Config{Grace: time.Nanosecond})
	vol := w.create("data")
	cl, lease, err := w.rent(w.hosts[0], agentapi.MountRW, vol.ID)
	w.Must(err)
	a := w.agent(w.hosts[0], lease, vol.ID)
	w.Must(a.open(agentapi.MountRW))
	p, err := a.snapshot(map[string][]byte{"f": []byte("kept")})
	w.Must(err)
	if err := w.v.Catalog.Delete(t.Context(), w.who, vol.ID); !fault.Is(err, fault.Conflict) {
		t.Fatalf("a mounted volume is deleted: %v", err)
	}
	clone, _, err := w.v.Snapshots.Clone(t.Context(), w.who, vol.ID, 0, NewVolume{Name: "copy"}, idem.Request{})
	w.Must(err)
	w.release(cl)
	w.Must(w.v.Catalog.Delete(t.Context(), w.who, vol.ID))
	_, err = w.v.Collector.Sweep(t.Context())
	w.Must(err)
	if got, err := w.content(clone.ID, "f"); got != "kept" {
		t.Fatalf("the clone reads %q: %v", got, err)
	}
	level := func() (bytes int64) {
		w.Must(w.d.Pool.QueryRow(t.Context(), "SELECT bytes FROM data_level ORDER BY from_at DESC LIMIT 1").Scan(&bytes))
		return bytes
	}
	if level() != int64(len(p.body)) {
		t.Fatalf("the level is %d", level())
	}
	w.Must(w.v.Catalog.Delete(t.Context(), w.who, clone.ID))
	if level() != 0 {
		t.Fatalf("after the deletion the level is %d", level())
	}
	var keys int
	w.Must(w.d.Pool.QueryRow(t.Context(), "SELECT count(key_sealed) FROM data_domain").Scan(&keys))
	if keys != 0 {
		t.Fatal("the key outlives the deletion, while the packs are still stored")
	}
	w.Exec("UPDATE data_pack SET url_until = clock_timestamp()")
	if n, err := w.v.Collector.Sweep(t.Context()); n != 1 || err != nil {
		t.Fatalf("%d packs deleted: %v", n, err)
	}
	var domain id.DataDomain
	w.Must(w.d.Pool.QueryRow(t.Context(), "SELECT domain_id FROM volume WHERE id = $1", vol.ID).Scan(&domain))
	if _, err := w.store.Head(t.Context(), store.Key(domain, p.n)); err != store.ErrNotFound {
		t.Fatalf("the pack is still stored: %v", err)
	}
	if _, err := w.v.Catalog.Get(t.Context(), w.who.Org, vol.ID); !fault.Is(err, fault.NotFound) {
		t.Fatalf("%v", err)
	}
	w.create("data") // its name is free again
}

// What an organisation may store is limited where packs are granted.
func TestQuota(t *testing.T) {
	t.Parallel()
	w := newWorld(t, Config{MaxStored: 1_000_000})
	vol := w.create("data")
	_, lease, err := w.rent(w.hosts[0], agentapi.MountRW, vol.ID)
	w.Must(err)
	a := w.agent(w.hosts[0], lease, vol.ID)
	w.Must(a.open(agentapi.MountRW))
	_, err = a.snapshot(map[string][]byte{"f": noise(600_000)})
	w.Must(err)
	if _, err = a.snapshot(map[string][]byte{"f": noise(600_000)}); code(err) != agentapi.VolumeQuota {
		t.Fatalf("%v", err)
	}
}

// Packs are limited by number, too: each counts as a least size until the store has deleted it.
func TestQuota_CountsPacks(t *testing.T) {
	t.Parallel()
	const room = 4
	w := newWorld(t, Config{MaxStored: (room + 1) << 18})
	vol := w.create("data")
	_, lease, err := w.rent(w.hosts[0], agentapi.MountRW, vol.ID)
	w.Must(err)
	a := w.agent(w.hosts[0], lease, vol.ID)
	w.Must(a.open(agentapi.MountRW))
	snap := id.New[id.Snapshot]()
	for i := range room + 2 {
		r, err := a.send(agentapi.VolumeRequest{Op: agentapi.VolumeReserve, Reserve: &agentapi.ReservePacks{Count: 1}})
		w.Must(err)
		_, err = a.grant(snap, pack{n: r.Reserve.First, body: []byte{byte(i)}})
		if i < room {
			w.Must(err)
		} else if code(err) != agentapi.VolumeQuota {
			t.Errorf("pack %d of a byte: %v", i+1, err)
		}
	}
	if _, err := a.send(agentapi.VolumeRequest{Op: agentapi.VolumeClose, Close: &agentapi.CloseVolume{}}); err != nil {
		t.Fatal(err)
	}
	w.Exec("UPDATE data_pack SET url_until = url_until - interval '1 day'")
	_, err = w.v.Collector.Sweep(t.Context())
	w.Must(err)
	var packs int
	w.Must(w.d.Pool.QueryRow(t.Context(), "SELECT packs FROM data_domain").Scan(&packs))
	if packs != 0 {
		t.Errorf("%d packs count after the store has deleted all", packs)
	}
}

// A volume can have many readers; they see one snapshot each and write nothing.
func TestReaders(t *testing.T) {
	t.Parallel()
	w := newWorld(t, Config{})
	vol := w.create("data")
	_, lease, err := w.rent(w.hosts[0], agentapi.MountRW, vol.ID)
	w.Must(err)
	a := w.agent(w.hosts[0], lease, vol.ID)
	w.Must(a.open(agentapi.MountRW))
	_, err = a.snapshot(map[string][]byte{"f": noise(10)})
	w.Must(err)
	_, lease, err = w.rent(w.hosts[1], agentapi.MountRO, vol.ID)
	w.Must(err)
	r := w.agent(w.hosts[1], lease, vol.ID)
	if err := r.open(agentapi.MountRW); code(err) != agentapi.VolumeNotFound {
		t.Fatalf("a reader opens for writing: %v", err)
	}
	w.Must(r.open(agentapi.MountRO))
	if r.base == nil || r.base.Seq != 1 {
		t.Fatalf("%+v", r.base)
	}
	if _, err := r.build(nil); code(err) != agentapi.VolumeFenced {
		t.Fatalf("a reader writes: %v", err)
	}
	_, err = a.snapshot(map[string][]byte{"f": noise(10)}) // the writer is not disturbed
	w.Must(err)
}

// With the last volume of a data domain its key is destroyed, and not before: a clone keeps it, and so does a cluster
// that goes on with a volume that was erased, until it has ended and a sweep comes.
func TestTheKeyIsDestroyed(t *testing.T) {
	t.Parallel()
	w := newWorld(t, Config{PricePerGBHour: 1})
	vol := w.create("data")
	cl, lease, err := w.rent(w.hosts[0], agentapi.MountRW, vol.ID)
	w.Must(err)
	a := w.agent(w.hosts[0], lease, vol.ID)
	w.Must(a.open(agentapi.MountRW))
	_, err = a.snapshot(map[string][]byte{"f": noise(1000)})
	w.Must(err)
	var domain id.DataDomain
	w.Must(w.d.Pool.QueryRow(t.Context(), "SELECT domain_id FROM volume WHERE id = $1", vol.ID).Scan(&domain))
	expect := func(when string, want bool) {
		t.Helper()
		var has, erased bool
		w.Must(w.d.Pool.QueryRow(t.Context(), "SELECT key_sealed IS NOT NULL, erased_at IS NOT NULL FROM data_domain "+
			"WHERE id = $1", domain).Scan(&has, &erased))
		if has != want || erased == want {
			t.Fatalf("%s: there is a key: %t, erased: %t", when, has, erased)
		}
	}
	clone, _, err := w.v.Snapshots.Clone(t.Context(), w.who, vol.ID, 0, NewVolume{Name: "copy"}, idem.Request{})
	w.Must(err)
	w.Must(w.v.Catalog.Delete(t.Context(), w.who, clone.ID))
	expect("after one of two volumes", true)
	// The other one is erased although the cluster goes on. Its host still asks for its state.
	w.Tx(func(ctx context.Context, tx *db.Tx) error { return EndTakenOver(ctx, tx, w.who.Org) })
	_, err = w.v.Collector.Sweep(t.Context())
	w.Must(err)
	expect("while a cluster has the volume", true)
	rows, err := w.d.Q.MountsOfHost(t.Context(), w.hosts[0])
	if err != nil || len(rows) != 1 {
		t.Fatalf("%+v %v", rows, err)
	}
	if _, err := OpenKey(w.Box(), rows[0].DomainID, rows[0].KeySealed); err != nil {
		t.Fatalf("the host's state cannot be made: %v", err)
	}
	w.Exec("UPDATE cluster SET state = 'released', ended_at = clock_timestamp() WHERE id = $1", cl)
	_, err = w.v.Collector.Sweep(t.Context())
	w.Must(err)
	expect("while the lease has not ended", true)
	w.release(cl)
	_, err = w.v.Collector.Sweep(t.Context())
	w.Must(err)
	expect("after the cluster", false)
	// What is left of the domain is swept without the key, and nothing can be sent to it.
	if _, err := a.build(map[string][]byte{"f": noise(10)}); code(err) != agentapi.VolumeFenced {
		t.Errorf("a host of an erased volume: %v", err)
	}
	if _, err := w.v.Catalog.Reseal(t.Context()); err != nil {
		t.Error(err)
	}
	if _, err := w.v.Meters.chargeDue(t.Context(), time.Now().Add(2*ChargeEvery)); err != nil {
		t.Errorf("what was stored before is charged: %v", err)
	}
}
