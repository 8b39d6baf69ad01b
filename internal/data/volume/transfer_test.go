package volume

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/data/chunk"
	"github.com/musterhq/muster/internal/data/store"
	"github.com/musterhq/muster/internal/data/transfer"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/testing/s3test"
)

// direct is the server's side of a transfer, without HTTP between.
type direct struct {
	w        *world
	vol      id.Volume
	transfer id.DataSession
	snapshot id.Snapshot
	grants   *atomic.Int64
	before   func(grant int64) // before a pack is granted; may be nil
}

func (r direct) Reserve(ctx context.Context, count int) (int64, int, error) {
	out, err := r.w.v.Transfers.Reserve(ctx, r.w.who.Org, r.vol, r.transfer, count)
	return out.First, out.Count, err
}

func (r direct) Store(ctx context.Context, n int64, sum [32]byte, bytes int64) (transfer.Request, error) {
	if n := r.grants.Add(1); r.before != nil {
		r.before(n)
	}
	u, err := r.w.v.Transfers.StorePack(ctx, r.w.who.Org, r.vol, r.transfer,
		agentapi.PackGrant{N: n, SHA256: sum[:], Bytes: bytes})
	return transfer.Request{Stored: u.Stored, Method: u.Method, URL: u.URL, Header: u.Header}, err
}

func (r direct) Read(ctx context.Context, n int64) (transfer.Request, error) {
	u, err := r.w.v.Transfers.ReadPack(ctx, r.w.who.Org, r.vol, r.transfer, n)
	return transfer.Request{Method: u.Method, URL: u.URL, Header: u.Header, Bytes: u.Bytes}, err
}

func (r direct) Commit(ctx context.Context, s transfer.Snapshot) (int64, []int64, error) {
	out, err := r.w.v.Transfers.Commit(ctx, r.w.who.Org, r.vol, r.transfer, agentapi.CommitVolume{
		Snapshot: r.snapshot.String(), Root: wirePlace(s.Root), Packs: s.Packs, LogicalBytes: s.Bytes, Files: s.Files,
	})
	return out.Seq, out.Missing, err
}

func (r direct) Report(context.Context, transfer.Progress) error { return nil }

// session opens a transfer, or opens it again.
func (w *world) session(vol id.Volume, session id.DataSession, snap id.Snapshot, direction string) (*transfer.Session,
	*atomic.Int64) {
	w.t.Helper()
	t, err := w.v.Transfers.Open(w.t.Context(), w.who, vol, NewTransfer{ID: session, Direction: direction})
	w.Must(err)
	keys, err := chunk.NewKeys(t.Key)
	w.Must(err)
	grants := &atomic.Int64{}
	s := &transfer.Session{Remote: direct{w, vol, session, snap, grants, nil}, Keys: keys, HTTP: http.DefaultClient,
		Patience: time.Second, Least: 10 * time.Millisecond}
	if t.Base != nil {
		ref, err := placeRef(t.Base.Root)
		w.Must(err)
		s.Base = &ref
	}
	return s, grants
}

func (w *world) upload(vol id.Volume, from string, to ...string) (transfer.Uploaded, error) {
	w.t.Helper()
	session := id.New[id.DataSession]()
	s, _ := w.session(vol, session, id.New[id.Snapshot](), Upload)
	defer func() { w.Must(w.v.Transfers.Close(context.WithoutCancel(w.t.Context()), w.who.Org, vol, session)) }()
	return (&transfer.Upload{Session: s, From: from, To: to}).Run(w.t.Context())
}

func (w *world) download(vol id.Volume, from, to string) (transfer.Downloaded, error) {
	w.t.Helper()
	s, _ := w.session(vol, id.New[id.DataSession](), id.Snapshot{}, Download)
	return (&transfer.Download{Session: s, From: from, To: to}).Run(w.t.Context())
}

// digest describes everything in a folder: names, kinds, permissions, contents, times.
func digest(t *testing.T, dir string) map[string]string {
	t.Helper()
	out := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || path == dir {
			return err
		}
		rel, _ := filepath.Rel(dir, path)
		info, err := d.Info()
		if err != nil {
			return err
		}
		switch {
		case d.IsDir():
			out[rel] = info.Mode().String()
		case info.Mode()&fs.ModeSymlink != 0:
			target, err := os.Readlink(path)
			out[rel] = "-> " + target
			return err
		default:
			b, err := os.ReadFile(path)
			sum := sha256.Sum256(b)
			out[rel] = info.Mode().String() + info.ModTime().String() + hex.EncodeToString(sum[:])
			return err
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func same(t *testing.T, what string, got, want map[string]string) {
	t.Helper()
	for name := range want {
		if got[name] != want[name] {
			t.Errorf("%s: %s is %q, want %q", what, name, got[name], want[name])
		}
	}
	for name := range got {
		if _, ok := want[name]; !ok {
			t.Errorf("%s: there is %s", what, name)
		}
	}
}

// write makes files below a folder.
func (w *world) write(dir string, files map[string][]byte) {
	w.t.Helper()
	for name, b := range files {
		at := filepath.Join(dir, name)
		w.Must(os.MkdirAll(filepath.Dir(at), 0o755))
		w.Must(os.WriteFile(at, b, 0o644))
	}
}

func (w *world) sources() string {
	w.t.Helper()
	dir := w.t.TempDir()
	w.write(dir, map[string][]byte{"big.bin": noise(40 << 20), "sub/deep/a.txt": []byte("a"), "sub/empty": nil,
		"ünï cödé": noise(100), "run.sh": []byte("#!/bin/sh\n")})
	w.Must(os.Chmod(filepath.Join(dir, "run.sh"), 0o755))
	w.Must(os.Symlink("sub/deep/a.txt", filepath.Join(dir, "link")))
	w.Must(os.Symlink("/etc/passwd", filepath.Join(dir, "away")))
	w.Must(os.Mkdir(filepath.Join(dir, "none"), 0o755))
	return dir
}

// onS3 makes the volumes of a world store in a real S3 store.
func (w *world) onS3() {
	w.t.Helper()
	s, err := store.OpenS3(s3test.Start(w.t).Config)
	w.Must(err)
	w.serveFrom(s)
}

// An upload comes down again, byte by byte, from each kind of store. What the store already has is not sent, and other
// files of the volume stay.
func TestACopyGoesThereAndBack(t *testing.T) {
	t.Parallel()
	for name, prepare := range map[string]func(*world){"folder": func(*world) {}, "s3": (*world).onS3} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, Config{})
			prepare(w)
			vol, from := w.create("data"), w.sources()
			out, err := w.upload(vol.ID, from, "data")
			w.Must(err)
			if out.Seq != 1 || out.Files != 7 || out.Moved < 40<<20 {
				t.Errorf("%+v", out)
			}
			to := filepath.Join(t.TempDir(), "new")
			_, err = w.download(vol.ID, "/data", to)
			w.Must(err)
			same(t, "first", digest(t, to), digest(t, from))

			w.write(from, map[string][]byte{"sub/more": []byte("more")})
			if out, err = w.upload(vol.ID, from, "data"); err != nil || out.Moved > 1<<20 || out.Seq != 2 {
				t.Errorf("the second copy: %+v %v", out, err)
			}
			other := t.TempDir()
			w.write(other, map[string][]byte{"x": []byte("x")})
			_, err = w.upload(vol.ID, filepath.Join(other, "x"), "beside", "y")
			w.Must(err)
			down, err := w.download(vol.ID, "/data", to)
			if err != nil || down.Kept < 40<<20 || down.Moved > 1<<20 {
				t.Errorf("the second way back: %+v %v", down, err)
			}
			same(t, "second", digest(t, to), digest(t, from))
			all := t.TempDir()
			_, err = w.download(vol.ID, "", all)
			w.Must(err)
			if b, err := os.ReadFile(filepath.Join(all, "beside", "y")); string(b) != "x" {
				t.Errorf("the single file is %q %v", b, err)
			}
			same(t, "all", digest(t, filepath.Join(all, "data")), digest(t, from))
		})
	}
}

// An upload that is killed at any moment leaves the volume as it was. The next one sends only what is not stored.
func TestAnUploadGoesOn(t *testing.T) {
	t.Parallel()
	w := newWorld(t, Config{})
	vol, from := w.create("data"), w.sources()
	path := filepath.Join(t.TempDir(), "journal")
	session, snap := id.New[id.DataSession](), id.New[id.Snapshot]()
	run := func(ctx context.Context, before func(grant int64)) (transfer.Uploaded, int64, error) {
		var head struct{ ID string }
		j, _, err := transfer.OpenJournal(path, struct{ ID string }{session.String()}, &head)
		w.Must(err)
		if _, _, err := transfer.OpenJournal(path, nil, &head); !errors.Is(err, transfer.ErrBusy) {
			t.Errorf("a second process opens the journal: %v", err)
		}
		defer j.Close()
		s, grants := w.session(vol.ID, session, snap, Upload)
		s.Remote = direct{w, vol.ID, session, snap, grants, before}
		out, err := (&transfer.Upload{Session: s, From: from, Journal: j}).Run(ctx)
		return out, grants.Load(), err
	}
	ctx, kill := context.WithCancel(t.Context())
	_, _, err := run(ctx, func(grant int64) {
		if grant < 3 {
			return
		}
		for ctx.Err() == nil { // until a pack is noted as stored
			if info, err := os.Stat(path); err == nil && info.Size() > 1000 {
				kill()
			}
		}
	})
	if !errors.Is(err, context.Canceled) {
		t.Fatalf("the killed upload: %v", err)
	}
	if got, err := w.v.Catalog.Get(t.Context(), w.who.Org, vol.ID); err != nil || got.HeadSeq != 0 {
		t.Fatalf("the volume after the kill: %+v %v", got, err)
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
	w.Must(err)
	_, err = f.Write(make([]byte, 100)) // what a loss of power leaves
	w.Must(errors.Join(err, f.Close()))
	stored := int64(len(w.objects()))
	if stored == 0 {
		t.Fatal("nothing was stored before the kill")
	}
	if _, err := w.v.Collector.Sweep(t.Context()); err != nil {
		t.Fatal(err)
	}

	out, grants, err := run(t.Context(), nil)
	w.Must(err)
	if out.Seq != 1 || out.Moved > (40<<20)-(10<<20) {
		t.Errorf("the upload that went on: %+v, %d packs stored before, %d granted", out, stored, grants)
	}
	to := t.TempDir()
	_, err = w.download(vol.ID, "/", to)
	w.Must(err)
	same(t, "resumed", digest(t, to), digest(t, from))

	// Its commit, sent again because the answer was lost, says the same.
	again, err := w.v.Transfers.Commit(t.Context(), w.who.Org, vol.ID, session,
		agentapi.CommitVolume{Snapshot: snap.String()})
	if err != nil || again.Seq != 1 {
		t.Errorf("the commit again: %+v %v", again, err)
	}
}

// objects are the keys of everything in the store.
func (w *world) objects() (keys []string) {
	w.t.Helper()
	for o, err := range w.store.List(w.t.Context(), store.Packs, "") {
		w.Must(err)
		keys = append(keys, o.Key)
	}
	return keys
}

// A download that was killed goes on with what is whole, and trusts nothing that lies there.
func TestADownloadGoesOn(t *testing.T) {
	t.Parallel()
	w := newWorld(t, Config{})
	vol, from := w.create("data"), w.sources()
	_, err := w.upload(vol.ID, from)
	w.Must(err)
	to := t.TempDir()
	ctx, kill := context.WithCancel(t.Context())
	s, _ := w.session(vol.ID, id.New[id.DataSession](), id.Snapshot{}, Download)
	_, err = (&transfer.Download{Session: s, From: "/", To: to, Progress: func(p transfer.Progress) {
		if p.Done > 20<<20 {
			kill()
		}
	}}).Run(ctx)
	if !errors.Is(err, context.Canceled) {
		t.Fatalf("the killed download: %v", err)
	}
	if _, err := os.Stat(filepath.Join(to, "big.bin")); err == nil {
		t.Error("half a file has its name")
	}
	// Links that lie where the download writes: nothing is written through them.
	victim := filepath.Join(t.TempDir(), "victim")
	w.Must(os.WriteFile(victim, []byte("untouched"), 0o600))
	w.Must(os.Symlink(victim, filepath.Join(to, "run.sh")))
	w.Must(os.Symlink(victim, filepath.Join(to, "run.sh.muster-part")))
	down, err := w.download(vol.ID, "/", to)
	w.Must(err)
	if down.Kept < 15<<20 {
		t.Errorf("only %d bytes of the first attempt were used", down.Kept)
	}
	same(t, "resumed", digest(t, to), digest(t, from))
	if b, _ := os.ReadFile(victim); string(b) != "untouched" {
		t.Errorf("the download wrote through a link: %q", b)
	}
	w.Must(os.WriteFile(filepath.Join(to, "sub/empty"), []byte("not any more"), 0o600))
	b, err := os.ReadFile(filepath.Join(to, "big.bin"))
	w.Must(err)
	b[30<<20] ^= 1
	w.Must(os.WriteFile(filepath.Join(to, "big.bin"), b, 0o600))
	_, err = w.download(vol.ID, "/", to)
	w.Must(err)
	same(t, "repaired", digest(t, to), digest(t, from))
	w.Must(os.RemoveAll(filepath.Join(to, "sub")))
	w.Must(os.Symlink(t.TempDir(), filepath.Join(to, "sub")))
	if _, err := w.download(vol.ID, "/", to); !fault.Is(err, fault.Conflict) {
		t.Errorf("a download through a folder that is a link: %v", err)
	}
}

// What cannot be copied is refused with a message that names it, and changes nothing.
func TestCopiesThatAreRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t, Config{})
	vol := w.create("data")
	dir := t.TempDir()
	w.write(dir, map[string][]byte{"folder/file": []byte("x"), "plain": noise(1000)})
	_, err := w.upload(vol.ID, dir)
	w.Must(err)
	other := t.TempDir()
	w.Must(os.Symlink("x", filepath.Join(other, "folder")))
	bad := func(what string, err error, kind fault.Kind, text string) {
		t.Helper()
		if !fault.Is(err, kind) || !strings.Contains(err.Error(), text) {
			t.Errorf("%s: %v", what, err)
		}
	}
	_, err = w.upload(vol.ID, other)
	bad("a link over a folder", err, fault.Conflict, "is a folder in the volume")
	_, err = w.upload(w.create("b").ID, "/proc/self/mem", "mem")
	bad("a file that cannot be read", err, fault.Invalid, "/proc/self/mem")
	_, err = w.upload(w.create("c").ID, filepath.Join(other, "missing"))
	bad("no such file", err, fault.Invalid, "missing")
	_, err = w.upload(w.create("d").ID, filepath.Join(dir, "plain"), "a", "..", "b")
	if err == nil || !strings.Contains(err.Error(), "..") {
		t.Errorf("a path that leads up: %v", err)
	}
	_, err = w.download(vol.ID, "/nothing", other)
	bad("no such file in the volume", err, fault.NotFound, "/nothing")
	_, err = w.download(vol.ID, "/folder/../plain", other)
	bad("a path that leads up", err, fault.NotFound, "..")

	open := func(who string, vol id.Volume, n NewTransfer) error {
		principal := w.who
		if who != "renter" {
			principal = w.SignUp(who)
		}
		_, err := w.v.Transfers.Open(t.Context(), principal, vol, n)
		return err
	}
	fresh := NewTransfer{ID: id.New[id.DataSession](), Direction: Upload}
	bad("a foreign volume", open("stranger", vol.ID, fresh), fault.NotFound, "volume not found")
	empty := NewTransfer{ID: fresh.ID, Direction: Download}
	bad("an empty volume", open("renter", w.create("e").ID, empty), fault.NotFound, "snapshot")
	busy := w.create("f").ID
	w.Must(open("renter", busy, fresh))
	bad("a transfer of another volume", open("renter", vol.ID, fresh), fault.NotFound, "transfer not found")
	second := NewTransfer{ID: id.New[id.DataSession](), Direction: Upload}
	bad("two uploads", open("renter", busy, second), fault.Conflict, "written by an upload")
	w.Must(w.v.Transfers.Close(t.Context(), w.who.Org, busy, fresh.ID))
	w.Must(open("renter", busy, second))
	bad("one that is over", open("renter", busy, fresh), fault.Conflict, "is over")
	_, err = w.v.Transfers.Reserve(t.Context(), w.who.Org, busy, fresh.ID, 1)
	bad("numbers for one that is over", err, fault.Conflict, "is over")

	cl, lease, err := w.rent(w.hosts[0], agentapi.MountRW, vol.ID)
	w.Must(err)
	w.Must(w.agent(w.hosts[0], lease, vol.ID).open(agentapi.MountRW))
	third := NewTransfer{ID: id.New[id.DataSession](), Direction: Upload}
	bad("a volume that a cluster writes", open("renter", vol.ID, third),
		fault.Conflict, "written by the cluster")
	w.release(cl)
}

// A quota that is full, and a volume that is too small, end an upload with what to do; nothing is committed.
func TestAnUploadThatDoesNotFit(t *testing.T) {
	t.Parallel()
	w := newWorld(t, Config{MaxStored: 20 << 20})
	vol, from := w.create("data"), w.sources()
	_, err := w.upload(vol.ID, from)
	if !fault.Is(err, fault.QuotaExceeded) || !strings.Contains(err.Error(), "may store") {
		t.Errorf("over the quota: %v", err)
	}
	small := w.create("small")
	w.Exec("UPDATE volume SET size_limit = 1000000 WHERE id = $1", small.ID)
	dir := t.TempDir()
	w.write(dir, map[string][]byte{"f": noise(2_000_000)})
	_, err = w.upload(small.ID, dir)
	if !fault.Is(err, fault.QuotaExceeded) || !strings.Contains(err.Error(), "room for") {
		t.Errorf("over the volume's size: %v", err)
	}
	for _, v := range []id.Volume{vol.ID, small.ID} {
		if got, err := w.v.Catalog.Get(t.Context(), w.who.Org, v); err != nil || got.HeadSeq != 0 {
			t.Errorf("%+v %v", got, err)
		}
	}
}

// faulty stands between a transfer and the store.
type faulty struct {
	put atomic.Pointer[http.HandlerFunc]
}

// between puts a proxy in front of the world's store.
func (w *world) between() *faulty {
	w.t.Helper()
	f := &faulty{}
	mux := http.NewServeMux()
	srv := httptest.NewServer(mux)
	w.t.Cleanup(srv.Close)
	behind, err := store.OpenFolder(w.t.TempDir(), srv.URL, bytes.Repeat([]byte{7}, 32))
	w.Must(err)
	mux.HandleFunc("/", func(rw http.ResponseWriter, r *http.Request) {
		if h := f.put.Load(); h != nil {
			(*h)(rw, r)
			return
		}
		behind.Handler().ServeHTTP(rw, r)
	})
	w.store = behind
	w.serveFrom(behind)
	return f
}

// A store that fails ends a copy with a message about it; the next attempt goes on, and nothing is lost. A store that
// claims to have stored a pack, and has not, is found out by the commit.
func TestAStoreThatFails(t *testing.T) {
	t.Parallel()
	w := newWorld(t, Config{})
	f := w.between()
	dir := t.TempDir()
	w.write(dir, map[string][]byte{"f": noise(3 << 20)})
	for name, c := range map[string]struct {
		h    http.HandlerFunc
		text string
	}{
		"500":  {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(500) }, "status 500"},
		"full": {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(507) }, "the store is full"},
		"late": {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(403) }, "its time is over"},
		"lies": {func(http.ResponseWriter, *http.Request) {}, "has not kept"},
		"cut":  {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, "does not answer"},
	} {
		vol := w.create("v" + name)
		f.put.Store(&c.h)
		session, snap := id.New[id.DataSession](), id.New[id.Snapshot]()
		s, _ := w.session(vol.ID, session, snap, Upload)
		s.Patience = 50 * time.Millisecond
		_, err := (&transfer.Upload{Session: s, From: dir}).Run(t.Context())
		if err == nil || !strings.Contains(err.Error(), c.text) || strings.Contains(err.Error(), "http://") {
			t.Errorf("%s: %v", name, err)
		}
		f.put.Store(nil)
		if got, err := w.v.Catalog.Get(t.Context(), w.who.Org, vol.ID); err != nil || got.HeadSeq != 0 {
			t.Errorf("%s: %+v %v", name, got, err)
		}
		s, _ = w.session(vol.ID, session, snap, Upload)
		_, err = (&transfer.Upload{Session: s, From: dir}).Run(t.Context())
		w.Must(err)
		to := t.TempDir()
		_, err = w.download(vol.ID, "/", to)
		w.Must(err)
		same(t, name, digest(t, to), digest(t, dir))
	}

	// A download reports a pack that the store has lost; an upload of the same files stores it again.
	vol := w.create("forgets")
	_, err := w.upload(vol.ID, dir)
	w.Must(err)
	for _, key := range w.objects() {
		if o, _ := w.store.Head(t.Context(), key); o.Bytes > 1<<20 && strings.Contains(key, w.domain(vol.ID).String()) {
			w.Must(w.store.Delete(t.Context(), key))
		}
	}
	if _, err = w.download(vol.ID, "/", t.TempDir()); !fault.Is(err, fault.Unavailable) ||
		!strings.Contains(err.Error(), "is lost") {
		t.Errorf("a pack that is gone: %v", err)
	}
}

func (w *world) domain(vol id.Volume) (d id.DataDomain) {
	w.t.Helper()
	w.Must(w.d.Pool.QueryRow(w.t.Context(), "SELECT domain_id FROM volume WHERE id = $1", vol).Scan(&d))
	return d
}

// What an upload has stored is billed as what a host has stored is, and what is not committed is removed after a day.
func TestAnUploadIsBilledAndCollected(t *testing.T) {
	t.Parallel()
	w := newWorld(t, Config{})
	vol := w.create("data")
	dir := t.TempDir()
	w.write(dir, map[string][]byte{"f": noise(1 << 20)})
	out, err := w.upload(vol.ID, dir)
	w.Must(err)
	var level, packs, granted int64
	w.Must(w.d.Pool.QueryRow(t.Context(), `SELECT d.bytes, d.granted, (SELECT sum(bytes) FROM data_pack p WHERE p.domain_id = d.id
		AND state = 'live') FROM data_domain d WHERE d.id = $1`, w.domain(vol.ID)).Scan(&level, &granted, &packs))
	if level != out.Moved || level != packs || granted != 0 {
		t.Errorf("a level of %d, packs of %d, %d granted, %d sent", level, packs, granted, out.Moved)
	}

	session := id.New[id.DataSession]()
	s, _ := w.session(vol.ID, session, id.New[id.Snapshot](), Upload)
	first, _, err := s.Remote.Reserve(t.Context(), 1)
	w.Must(err)
	r, err := s.Remote.Store(t.Context(), first, sha256.Sum256([]byte("abandoned")), 9)
	w.Must(err)
	u := agentapi.PackURL{Method: r.Method, URL: r.URL, Header: r.Header}
	if status := put(t, u, []byte("abandoned")); status != 200 {
		t.Fatal(status)
	}
	state := func() (state string) {
		err := w.d.Pool.QueryRow(t.Context(), "SELECT state FROM data_pack WHERE domain_id = $1 AND n = $2", w.domain(vol.ID),
			first).Scan(&state)
		w.Must(err)
		return state
	}
	w.Exec("UPDATE data_pack SET url_until = clock_timestamp() - interval '1 minute' WHERE n = $1", first)
	for _, c := range []struct{ age, want string }{{"23 hours", "granted"}, {"25 hours", "doomed"}} {
		w.Exec("UPDATE data_session SET expires_at = clock_timestamp() - $1::text::interval WHERE id = $2", c.age, session)
		_, err = w.v.Collector.Sweep(t.Context())
		w.Must(err)
		if got := state(); got != c.want {
			t.Errorf("after %s: %s", c.age, got)
		}
	}
}
