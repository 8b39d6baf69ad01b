package lazy

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/agent/storage/fusemount/mounttest"
	"github.com/musterhq/muster/agent/storage/lazy/lazytest"
	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/data/manifest"
	"github.com/musterhq/muster/internal/data/store"
	"github.com/musterhq/muster/internal/testing/s3test"
)

// world is a host with a store, which has a snapshot.
type world struct {
	t       *testing.T
	gateway *s3test.Gateway
	s3      *store.S3
	p       *lazytest.Platform
	m       *Mounts
	w       Wanted
	log     *safeBuffer
}

type safeBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *safeBuffer) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(b)
}

func (s *safeBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

func packKey(n int64) string { return fmt.Sprintf("d/test/%d", n) }

func newWorld(t *testing.T, root *lazytest.Entry) *world {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Fatal("mounts need root: run the tests as root")
	}
	w := &world{t: t, gateway: s3test.Start(t), log: &safeBuffer{}}
	var err error
	w.s3, err = store.OpenS3(w.gateway.Config)
	w.must(err)
	sizes := map[int64]int64{}
	s, err := lazytest.Store(func(n int64, pack []byte) error {
		sizes[n] = int64(len(pack))
		return w.s3.Put(t.Context(), packKey(n), pack)
	}, root)
	w.must(err)
	w.p = &lazytest.Platform{Snapshot: &s, Life: time.Hour,
		Sign: func(ctx context.Context, n int64, until time.Time) (agentapi.PackURL, error) {
			r, err := w.s3.SignGet(ctx, packKey(n), until)
			return agentapi.PackURL{Method: r.Method, URL: r.URL, Header: r.Header, Bytes: sizes[n]}, err
		}}
	w.m = New(w.config())
	w.w = Wanted{Ref: agentapi.LeaseRef{Lease: "lse_test", Epoch: 1}, Cache: t.TempDir(),
		Mount: agentapi.LazyMount{Path: "/data", Volume: "vol_test", Name: "data", CacheBytes: 1 << 30,
			Key: lazytest.Key}}
	t.Cleanup(func() { w.detach(w.m) })
	return w
}

func (w *world) config() Config {
	return Config{Dir: w.t.TempDir(), Program: mounttest.Program(w.t), Server: w.p.Serve, Patience: 3 * time.Second,
		Log: slog.New(slog.NewTextHandler(w.log, nil))}
}

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) detach(m *Mounts) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	if err := m.Detach(ctx, w.w.Ref); err != nil {
		w.t.Error(err)
	}
}

func (w *world) state() State { return w.m.State(w.w.Ref, w.w.Mount.Volume) }
func (w *world) at(name string) string {
	return filepath.Join(w.m.Point(w.w.Ref, w.w.Mount.Volume), name)
}

func (w *world) pid() int {
	w.t.Helper()
	pid, ok := w.m.PID(w.w.Ref, w.w.Mount.Volume)
	if !ok {
		w.t.Fatal("nothing runs")
	}
	return pid
}

func (w *world) await(what string, ok func(State) bool) State {
	w.t.Helper()
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		s := w.state()
		if ok(s) {
			return s
		}
		if time.Now().After(end) {
			log, _ := os.ReadFile(w.m.Log(w.w.Ref, w.w.Mount.Volume))
			w.t.Fatalf("never %s: %+v\n%s\n%s", what, s, w.log, log)
		}
	}
}

func (w *world) mounted() {
	w.t.Helper()
	w.m.Want(w.w)
	w.await("ready", func(s State) bool { return s.Ready })
}

// forget drops what the kernel has of the files.
func (w *world) forget() {
	w.t.Helper()
	w.must(os.WriteFile("/proc/sys/vm/drop_caches", []byte("3"), 0))
}

func noise(seed byte, n int) []byte {
	b := make([]byte, n)
	_, _ = rand.NewChaCha8([32]byte{seed}).Read(b)
	return b
}

func (w *world) same(name string, want []byte) {
	w.t.Helper()
	b, err := os.ReadFile(w.at(name))
	if err != nil || sha256.Sum256(b) != sha256.Sum256(want) {
		w.t.Errorf("%s: %d bytes of %d, %v", name, len(b), len(want), err)
	}
}

func TestASnapshotIsReadAsItWas(t *testing.T) {
	big, holed := noise(1, 20<<20), noise(2, 3<<20)
	root := lazytest.Dir("", lazytest.File("big", big), lazytest.File("empty", nil),
		lazytest.Dir("sub", lazytest.File("small", []byte("text"))))
	sparse := lazytest.File("sparse", holed)
	sparse.Holes = []manifest.Extent{{Offset: 0, Length: 1 << 20}, {Offset: 2 << 20, Length: 4096}}
	sparse.Size = int64(len(holed)) + 1<<20 + 4096
	link := &lazytest.Entry{Entry: manifest.Entry{Name: "link", Kind: manifest.Symlink, Mode: 0o777,
		Target: "/etc/passwd"}}
	private := lazytest.File("private", []byte("mine"))
	private.Mode, private.UID, private.GID, private.MTime = 0o600, 1000, 1001, 1_700_000_000_123_456_789
	private.XAttrs = []manifest.XAttr{{Name: "user.a", Value: "b"}}
	root.Kids = append(root.Kids, sparse, link, private)
	w := newWorld(t, root)
	w.mounted()

	w.same("big", big)
	w.same("empty", nil)
	w.same("sub/small", []byte("text"))
	want := append(make([]byte, 1<<20), holed[:1<<20]...)
	want = append(append(want, make([]byte, 4096)...), holed[1<<20:]...)
	w.same("sparse", want)
	if target, err := os.Readlink(w.at("link")); err != nil || target != "/etc/passwd" {
		t.Errorf("the link is %q, %v", target, err)
	}
	info, err := os.Stat(w.at("private"))
	w.must(err)
	st := info.Sys().(*syscall.Stat_t)
	if info.Mode() != 0o600 || st.Uid != 1000 || st.Gid != 1001 || info.ModTime().UnixNano() != private.MTime {
		t.Errorf("%v %d:%d %d", info.Mode(), st.Uid, st.Gid, info.ModTime().UnixNano())
	}
	value := make([]byte, 8)
	if n, err := unix.Getxattr(w.at("private"), "user.a", value); err != nil || string(value[:n]) != "b" {
		t.Errorf("the attribute is %q, %v", value[:max(n, 0)], err)
	}
	var names []string
	entries, err := os.ReadDir(w.at(""))
	w.must(err)
	for _, e := range entries {
		names = append(names, e.Name())
	}
	if got := strings.Join(names, " "); got != "big empty link private sparse sub" {
		t.Errorf("the folder has %s", got)
	}
	if _, err := os.Stat(w.at("none")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a file that is not there: %v", err)
	}
	if err := os.WriteFile(w.at("new"), nil, 0o600); !errors.Is(err, unix.EROFS) {
		t.Errorf("a write: %v", err)
	}
	// Reads at any place, in any order.
	f, err := os.Open(w.at("big"))
	w.must(err)
	defer f.Close()
	for range 50 {
		off := rand.IntN(len(big))
		b := make([]byte, min(rand.IntN(1<<20)+1, len(big)-off))
		if _, err := f.ReadAt(b, int64(off)); err != nil || !bytes.Equal(b, big[off:off+len(b)]) {
			t.Fatalf("%d bytes at %d: %v", len(b), off, err)
		}
	}
	// Another user does not read what is not for him: the kernel checks.
	cmd := exec.Command("cat", w.at("private"))
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	if out, err := cmd.CombinedOutput(); err == nil {
		t.Errorf("another user reads %q", out)
	}
}

func TestAnEmptyVolume(t *testing.T) {
	w := newWorld(t, lazytest.Dir(""))
	w.p.Snapshot = nil
	w.mounted()
	if entries, err := os.ReadDir(w.at("")); err != nil || len(entries) > 0 {
		t.Errorf("%v, %v", entries, err)
	}
}

// A file that is larger than the cache is read whole, and the cache keeps to its limit.
func TestTheCacheKeepsToItsLimit(t *testing.T) {
	big := noise(3, 48<<20)
	w := newWorld(t, lazytest.Dir("", lazytest.File("big", big)))
	w.w.Mount.CacheBytes = 8 << 20
	w.mounted()
	for range 2 {
		w.same("big", big)
		w.forget()
		if used := diskUse(t, w.w.Cache); used > w.w.Mount.CacheBytes || used < 4<<20 {
			t.Errorf("the cache takes %d bytes", used)
		}
	}
}

func diskUse(t *testing.T, dir string) (n int64) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) || err == nil && d.IsDir() {
			return nil
		}
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err == nil {
			n += info.Sys().(*syscall.Stat_t).Blocks * 512
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// What was read once comes from the cache, also in the next process, while the store is away. Changed bytes of the
// cache are never returned.
func TestTheCacheIsUsedAgainAndVerified(t *testing.T) {
	content := noise(4, 6<<20)
	w := newWorld(t, lazytest.Dir("", lazytest.File("f", content)))
	w.mounted()
	w.same("f", content)
	w.await("kept in the cache", func(State) bool { return diskUse(t, w.w.Cache) >= int64(len(content)) })
	w.gateway.Kill()
	w.must(unix.Kill(w.pid(), unix.SIGKILL))
	w.await("ready again", func(s State) bool { return s.Ready && s.Starts == 2 })
	w.same("f", content)

	w.gateway.Run()
	w.must(filepath.WalkDir(w.w.Cache, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || d.Name() == "lock" {
			return err
		}
		b, err := os.ReadFile(path)
		if err == nil && len(b) > 0 {
			b[len(b)/2] ^= 1
			err = os.WriteFile(path, b, 0o600)
		}
		return err
	}))
	w.must(unix.Kill(w.pid(), unix.SIGKILL))
	w.await("ready again", func(s State) bool { return s.Ready && s.Starts == 3 })
	w.same("f", content)
}

// Killed under a reader, the mount is back in the running container within two seconds.
func TestAKilledProcessIsReplacedUnderAReader(t *testing.T) {
	content := noise(5, 1<<20)
	w := newWorld(t, lazytest.Dir("", lazytest.File("f", content)))
	w.mounted()
	at := filepath.Join(t.TempDir(), "mnt")
	w.must(os.Mkdir(at, 0o755))
	cmd := exec.Command("unshare", "-m", "--propagation", "private", "sh", "-ec",
		fmt.Sprintf("mount --bind %s %s; echo made; exec sleep 1000", w.at(""), at))
	out, err := cmd.StdoutPipe()
	w.must(err)
	w.must(cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	if _, err := io.ReadFull(out, make([]byte, 5)); err != nil {
		t.Fatal(err)
	}
	w.w.PID = cmd.Process.Pid
	w.m.Want(w.w)
	inside := fmt.Sprintf("/proc/%d/root%s/f", cmd.Process.Pid, at)
	read := func() error {
		b, err := os.ReadFile(inside)
		if err == nil && !bytes.Equal(b, content) {
			err = errors.New("other bytes")
		}
		return err
	}
	w.must(read())
	worst := time.Duration(0)
	for i := range 10 {
		pid := w.pid()
		begin := time.Now()
		w.must(unix.Kill(pid, unix.SIGKILL))
		for read() == nil && time.Since(begin) < 100*time.Millisecond { // from the kernel's cache
		}
		for err := read(); err != nil; err = read() {
			if time.Since(begin) > 20*time.Second {
				t.Fatalf("kill %d: %v: %+v\n%s", i, err, w.state(), w.log)
			}
			time.Sleep(time.Millisecond)
		}
		worst = max(worst, time.Since(begin))
		w.await("ready again", func(s State) bool { return s.Ready && s.Starts == i+2 })
	}
	t.Logf("back after %v at worst", worst)
	if worst > 2*time.Second {
		t.Errorf("back after %v only", worst)
	}
}

// The next agent adopts the process, without the key, and answers its requests.
func TestTheNextAgentAdopts(t *testing.T) {
	a, b := noise(6, 5<<20), noise(7, 40<<20)
	w := newWorld(t, lazytest.Dir("", lazytest.File("a", a), lazytest.File("b", b)))
	w.p.Life = time.Minute // less than what is needed: each pack's request is asked for again
	w.mounted()
	w.same("a", a)
	before := w.pid()
	w.m.Close()
	next := New(w.m.cfg)
	t.Cleanup(func() { w.detach(next) })
	w.m = next
	bare := w.w
	bare.Mount.Key = nil
	next.Want(bare)
	w.await("ready", func(s State) bool { return s.Ready })
	w.same("b", b)
	if after := w.pid(); after != before {
		t.Errorf("adopted %d, want %d", after, before)
	}
}

// A store that does not answer makes reads wait, and then fail with EIO; it is shown, and reads work again afterwards.
func TestAStoreThatIsAway(t *testing.T) {
	content := noise(8, 2<<20)
	w := newWorld(t, lazytest.Dir("", lazytest.File("f", content), lazytest.File("g", noise(9, 2<<20))))
	w.mounted()
	if _, err := os.ReadDir(w.at("")); err != nil {
		t.Fatal(err)
	}
	w.gateway.Kill()
	begin := time.Now()
	_, err := os.ReadFile(w.at("f"))
	if took := time.Since(begin); !errors.Is(err, unix.EIO) || took < 2*time.Second || took > 15*time.Second {
		t.Errorf("after %v: %v", took, err)
	}
	w.await("shown", func(s State) bool { return strings.Contains(s.Reading, "the store does not answer") })
	w.gateway.Run()
	w.same("f", content)
	w.await("no longer shown", func(s State) bool { return s.Reading == "" })
	w.reported("the store does not answer")
	w.reported("")

	// A store that comes back in time is not noticed but by the time.
	w.gateway.Kill()
	go func() {
		time.Sleep(time.Second)
		w.gateway.Run()
	}()
	w.same("g", noise(9, 2<<20))
}

// reported waits for a report that contains a text; "" is one without a problem.
func (w *world) reported(text string) {
	w.t.Helper()
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		w.p.Mu.Lock()
		all := w.p.Problems
		w.p.Mu.Unlock()
		if n := len(all); n > 0 && strings.Contains(all[n-1], text) && (text != "" || all[n-1] == "") {
			return
		}
		for _, x := range all {
			if text != "" && strings.Contains(x, text) {
				return
			}
		}
		if time.Now().After(end) {
			w.t.Fatalf("never reported %q: %q", text, all)
		}
	}
}

// A pack that the store has lost fails the reads that need it at once, names the file, and no others.
func TestALostPackIsNamed(t *testing.T) {
	whole := noise(11, 16<<20)
	w := newWorld(t, lazytest.Dir("", lazytest.File("a-lost", noise(10, 1<<20)), lazytest.File("b", whole)))
	w.mounted()
	w.must(w.s3.Delete(t.Context(), packKey(1)))
	if _, err := os.ReadFile(w.at("a-lost")); !errors.Is(err, unix.EIO) {
		t.Errorf("%v", err)
	}
	w.reported("lost pack 1 of the volume: /a-lost cannot be read")
	f, err := os.Open(w.at("b"))
	w.must(err)
	defer f.Close()
	tail := make([]byte, 512<<10)
	at := len(whole) - len(tail)
	if _, err := f.ReadAt(tail, int64(at)); err != nil || !bytes.Equal(tail, whole[at:]) {
		t.Errorf("what is in another pack: %v", err)
	}
}

// Bytes that the store has changed are not returned.
func TestChangedBytesAreNotReturned(t *testing.T) {
	w := newWorld(t, lazytest.Dir("", lazytest.File("f", noise(12, 1<<20))))
	w.mounted()
	o, err := w.s3.Head(t.Context(), packKey(1))
	w.must(err)
	r, err := w.s3.Read(t.Context(), packKey(1), 0, o.Bytes)
	w.must(err)
	b, err := io.ReadAll(r)
	w.must(errors.Join(err, r.Close()))
	b[len(b)/2] ^= 1
	w.must(w.s3.Delete(t.Context(), packKey(1)))
	w.must(w.s3.Put(t.Context(), packKey(1), b))
	if _, err := os.ReadFile(w.at("f")); !errors.Is(err, unix.EIO) {
		t.Errorf("%v", err)
	}
	w.await("named", func(s State) bool { return strings.Contains(s.Reading, "/f cannot be read") })
}

// Once the control plane refuses, reads of what is not in the cache fail, and do not wait.
func TestARefusalFailsReads(t *testing.T) {
	w := newWorld(t, lazytest.Dir("", lazytest.File("f", noise(13, 1<<20))))
	w.mounted()
	w.p.Mu.Lock()
	w.p.Refuse = &agentapi.VolumeError{Code: agentapi.VolumeFenced, Message: "the lease has ended"}
	w.p.Mu.Unlock()
	w.must(unix.Kill(w.pid(), unix.SIGKILL)) // the next process has no signed requests
	w.await("ready again", func(s State) bool { return s.Ready && s.Starts == 2 })
	begin := time.Now()
	if _, err := os.ReadFile(w.at("f")); !errors.Is(err, unix.EIO) || time.Since(begin) > 2*time.Second {
		t.Errorf("after %v: %v", time.Since(begin), err)
	}
}

func TestARefusedOpenIsFinal(t *testing.T) {
	w := newWorld(t, lazytest.Dir(""))
	w.p.Refuse = &agentapi.VolumeError{Code: agentapi.VolumeNotFound, Message: "the lease has no such volume"}
	w.m.Want(w.w)
	s := w.await("refused", func(s State) bool { return s.Refused != "" })
	if s.Ready || s.Refused != "the lease has no such volume" {
		t.Errorf("%+v", s)
	}
}

func TestNothingIsLeftAndTheSessionEnds(t *testing.T) {
	w := newWorld(t, lazytest.Dir("", lazytest.File("f", []byte("x"))))
	w.mounted()
	pid := w.pid()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
	if err == nil && bytes.Contains(b, lazytest.Key) {
		t.Error("the key is in the environment")
	}
	w.detach(w.m)
	if entries, err := os.ReadDir(w.m.cfg.Dir); err != nil || len(entries) > 0 {
		t.Errorf("left: %v, %v", entries, err)
	}
	w.p.Mu.Lock()
	defer w.p.Mu.Unlock()
	if !w.p.Closed {
		t.Error("the session was not closed")
	}
}

// A folder whose names lead elsewhere cannot be read at all, and the others can.
func TestHostileNames(t *testing.T) {
	hostile := func(dir, name string) *lazytest.Entry {
		d := lazytest.Dir(dir, lazytest.File("QQQQ", []byte("x")))
		d.Mangle = func(b []byte) { copy(b[bytes.Index(b, []byte("QQQQ")):], name) }
		return d
	}
	w := newWorld(t, lazytest.Dir("", lazytest.File("good", []byte("y")), hostile("slash", "../x"),
		hostile("nul", "a\x00bc")))
	w.mounted()
	for _, dir := range []string{"slash", "nul"} {
		if entries, err := os.ReadDir(w.at(dir)); !errors.Is(err, unix.EIO) || len(entries) > 0 {
			t.Errorf("%s: %v, %v", dir, entries, err)
		}
	}
	w.same("good", []byte("y"))
	w.await("named", func(s State) bool { return strings.Contains(s.Reading, "cannot be read") })
}
