package volume

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/data/chunk"
	"github.com/musterhq/muster/internal/data/manifest"
)

func statOf(info os.FileInfo) *syscall.Stat_t { return info.Sys().(*syscall.Stat_t) }

func write(t *testing.T, path string, n int, seed uint64) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, noise(n, seed), 0o644); err != nil {
		t.Fatal(err)
	}
}

func noise(n int, seed uint64) []byte {
	b := make([]byte, n)
	var s [32]byte
	s[0], s[1] = byte(seed), byte(seed>>8)
	_, _ = rand.NewChaCha8(s).Read(b)
	return b
}

// furnish fills a volume with all that a tree may have.
func furnish(t *testing.T, data string) {
	t.Helper()
	write(t, filepath.Join(data, "big"), 40<<20, 1)
	write(t, filepath.Join(data, "d", "small"), 1000, 2)
	write(t, filepath.Join(data, "d", "empty"), 0, 0)
	write(t, filepath.Join(data, "name with\nline\xff"), 10, 3)
	for _, err := range []error{
		os.Link(filepath.Join(data, "d", "small"), filepath.Join(data, "twin")),
		os.Symlink("/etc/passwd", filepath.Join(data, "link")),
		os.Chmod(filepath.Join(data, "d", "small"), 0o4751|os.ModeSetuid),
		os.Chown(filepath.Join(data, "d", "small"), 1000, 1001),
		unix.Setxattr(filepath.Join(data, "d", "small"), "user.note", []byte("a\x00b"), 0),
		os.Mkdir(filepath.Join(data, "closed"), 0o500),
		os.Chmod(filepath.Join(data, "closed"), 0o500),
		unix.Mkfifo(filepath.Join(data, "fifo"), 0o600),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	f, err := os.Create(filepath.Join(data, "sparse"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, at := range []int64{1 << 20, 5 << 20} {
		if _, err := f.WriteAt(noise(300_000, 9), at); err != nil {
			t.Fatal(err)
		}
	}
	if err := f.Truncate(1 << 40); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"big", "d/small", "d", ""} {
		if err := os.Chtimes(filepath.Join(data, name), time.Unix(1, 2), time.Unix(1_600_000_000, 123_456_789)); err != nil {
			t.Fatal(err)
		}
	}
}

// What was committed on one host is what another host restores: content, names, owners, permissions, times,
// attributes, links, holes. Devices and FIFOs are left out and set-uid bits are gone.
func TestASnapshotComesBackOnAnotherHost(t *testing.T) {
	t.Parallel()
	p, one := newPlatform(t), newRoot(t)
	v := p.attach(t, one)
	furnish(t, dataOf(one))
	r := v.mustSnapshot(t)
	if r.Seq != 1 || r.Consistency != agentapi.SnapshotExact || r.Sent < 40<<20 || r.Sent > 42<<20 {
		t.Errorf("%+v", r)
	}
	if s := p.Snapshots[0]; s.Files != 7 || s.LogicalBytes < 40<<20+600_000 || s.LogicalBytes > 40<<20+700_000 {
		t.Errorf("%d files, %d bytes", s.Files, s.LogicalBytes)
	}
	two := newRoot(t)
	var last Progress
	w, err := Open(t.Context(), p.config(two))
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	if err := w.Restore(t.Context(), func(p Progress) { last = p }); err != nil {
		t.Fatal(err)
	}
	if last.Done != last.Total || last.Total < 40<<20 {
		t.Errorf("progress %+v", last)
	}
	if err := errors.Join(os.Remove(filepath.Join(dataOf(one), "fifo")),
		os.Chmod(filepath.Join(dataOf(one), "d", "small"), 0o751),
		os.Chtimes(dataOf(one), time.Unix(1, 2), time.Unix(1_600_000_000, 123_456_789))); err != nil {
		t.Fatal(err)
	}
	if want, got := listing(t, dataOf(one)), listing(t, dataOf(two)); want != got {
		t.Errorf("restored:\n%s\nwant:\n%s", got, want)
	}
	note := make([]byte, 10)
	n, err := unix.Getxattr(filepath.Join(dataOf(two), "twin"), "user.note", note)
	if err != nil || string(note[:n]) != "a\x00b" {
		t.Errorf("attribute %q %v", note[:n], err)
	}
	var st unix.Stat_t
	if err := unix.Stat(filepath.Join(dataOf(two), "sparse"), &st); err != nil || st.Blocks*512 > 4<<20 {
		t.Errorf("a file of holes takes %d bytes: %v", st.Blocks*512, err)
	}
	// The next snapshot on the second host sends nothing but what changes there.
	write(t, filepath.Join(dataOf(two), "new"), 100_000, 4)
	if r := w.mustSnapshot(t); r.Seq != 2 || r.Sent > 120_000 {
		t.Errorf("%+v", r)
	}
}

// A change in a big file sends what is near the change, and an unchanged tree sends nothing.
func TestOnlyChangesAreSent(t *testing.T) {
	t.Parallel()
	p, root := newPlatform(t), newRoot(t)
	v := p.attach(t, root)
	big := filepath.Join(dataOf(root), "big")
	write(t, big, 64<<20, 1)
	v.mustSnapshot(t)
	if r := v.mustSnapshot(t); r.Sent > 64<<10 {
		t.Errorf("an unchanged tree sent %d bytes", r.Sent)
	}
	f, err := os.OpenFile(big, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for i := range 4 {
		if _, err := f.WriteAt(noise(100_000, uint64(50+i)), int64(i)*15<<20+777); err != nil {
			t.Fatal(err)
		}
	}
	if r := v.mustSnapshot(t); r.Sent > 6<<20 {
		t.Errorf("four changes sent %d bytes", r.Sent)
	}
	if _, err := f.WriteAt(noise(3<<20, 99), 64<<20); err != nil { // behind the end
		t.Fatal(err)
	}
	if r := v.mustSnapshot(t); r.Sent > 5<<20 {
		t.Errorf("3 MiB more sent %d bytes", r.Sent)
	}
	if err := f.Truncate(20<<20 + 5); err != nil {
		t.Fatal(err)
	}
	if r := v.mustSnapshot(t); r.Sent > 2<<20 {
		t.Errorf("a shorter file sent %d bytes", r.Sent)
	}
	if err := os.Rename(big, filepath.Join(dataOf(root), "moved")); err != nil {
		t.Fatal(err)
	}
	if r := v.mustSnapshot(t); r.Sent > 64<<10 {
		t.Errorf("another name sent %d bytes", r.Sent)
	}
	two := newRoot(t)
	p.attach(t, two)
	if want, got := listing(t, dataOf(root)), listing(t, dataOf(two)); want != got {
		t.Errorf("restored:\n%s\nwant:\n%s", got, want)
	}
}

// Packs that the store has lost are sent again, under new numbers.
func TestMissingPacksAreSentAgain(t *testing.T) {
	t.Parallel()
	p, root := newPlatform(t), newRoot(t)
	v := p.attach(t, root)
	write(t, filepath.Join(dataOf(root), "a"), 20<<20, 1)
	v.mustSnapshot(t)
	p.Mu.Lock()
	for n := range p.Packs {
		delete(p.Packs, n)
	}
	p.Mu.Unlock()
	write(t, filepath.Join(dataOf(root), "b"), 1000, 2)
	v.mustSnapshot(t)
	two := newRoot(t)
	p.attach(t, two)
	if want, got := listing(t, dataOf(root)), listing(t, dataOf(two)); want != got {
		t.Errorf("restored:\n%s\nwant:\n%s", got, want)
	}
}

// A refused snapshot is dropped, the next one is taken as if it had not been. A store that fails for a while is waited
// for.
func TestRefusalsAndOutages(t *testing.T) {
	t.Parallel()
	p, root := newPlatform(t), newRoot(t)
	v := p.attach(t, root)
	write(t, filepath.Join(dataOf(root), "a"), 1<<20, 1)
	p.Refuse = func(q agentapi.VolumeRequest) *agentapi.VolumeError {
		if q.Op == agentapi.VolumeGrant {
			return &agentapi.VolumeError{Code: agentapi.VolumeQuota, Message: "no money"}
		}
		return nil
	}
	var refused *agentapi.VolumeError
	if _, err := v.Snapshot(t.Context(), newRequest()); !errors.As(err, &refused) || refused.Code != agentapi.VolumeQuota {
		t.Fatal(err)
	}
	if v.Pending() != "" {
		t.Error("a refused snapshot is still there")
	}
	times := 0
	p.Mu.Lock()
	p.Refuse = nil
	p.Fail = func(*http.Request) int {
		times++
		return []int{0, 500, 503, 403, 0}[min(times, 4)]
	}
	p.Mu.Unlock()
	if r := v.mustSnapshot(t); r.Seq != 1 {
		t.Errorf("%+v", r)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	p.Mu.Lock()
	p.Fail = func(*http.Request) int { cancel(); return 500 }
	p.Mu.Unlock()
	write(t, filepath.Join(dataOf(root), "b"), 1<<20, 2)
	q := newRequest()
	if _, err := v.Snapshot(ctx, q); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	if v.Pending() != q.ID {
		t.Error("a snapshot that was interrupted is forgotten")
	}
	p.Mu.Lock()
	p.Fail = nil
	p.Mu.Unlock()
	write(t, filepath.Join(dataOf(root), "b"), 1<<20, 3) // later than the cut
	if r, err := v.Snapshot(t.Context(), q); err != nil || r.ID != q.ID || r.Seq != 2 {
		t.Errorf("%+v %v", r, err)
	}
	two := newRoot(t)
	p.attach(t, two)
	got, err := os.ReadFile(filepath.Join(dataOf(two), "b"))
	if err != nil || string(got) != string(noise(1<<20, 2)) {
		t.Errorf("the snapshot does not show the moment of its cut: %v", err)
	}
}

// A store that changes or loses bytes is found out, and nothing half restored counts as restored.
func TestAStoreThatLies(t *testing.T) {
	t.Parallel()
	p, root := newPlatform(t), newRoot(t)
	v := p.attach(t, root)
	write(t, filepath.Join(dataOf(root), "a"), 20<<20, 1)
	v.mustSnapshot(t)
	for name, change := range map[string]func([]byte) []byte{
		"a bit":   func(b []byte) []byte { b[len(b)/2] ^= 1; return b },
		"cut off": func(b []byte) []byte { return b[:len(b)/2] },
	} {
		packs := map[int64][]byte{}
		p.Mu.Lock()
		for n, b := range p.Packs {
			packs[n] = append([]byte(nil), b...)
			p.Packs[n] = change(append([]byte(nil), b...))
		}
		p.Mu.Unlock()
		w, err := Open(t.Context(), p.config(newRoot(t)))
		if err != nil {
			t.Fatal(err)
		}
		if err := w.Restore(t.Context(), nil); err == nil || w.Restored() {
			t.Errorf("%s: restored", name)
		} else if strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: the error has the URL: %v", name, err)
		}
		w.Close()
		p.Mu.Lock()
		p.Packs = packs
		p.Mu.Unlock()
	}
}

// A manifest that a hostile host wrote reaches nothing outside the volume and takes no memory without end.
func TestAHostileManifest(t *testing.T) {
	t.Parallel()
	keys, err := chunk.NewKeys(domainKey)
	if err != nil {
		t.Fatal(err)
	}
	for name, entries := range map[string]func(w manifest.Writer) []manifest.Entry{
		"a link and a folder behind it": func(w manifest.Writer) []manifest.Entry {
			d := manifest.Entry{Name: "out0", Kind: manifest.Dir, Mode: 0o755}
			if err := w.Dir(&d, []manifest.Entry{{Name: "x", Kind: manifest.File, Mode: 0o644}}); err != nil {
				t.Fatal(err)
			}
			return []manifest.Entry{{Name: "out", Kind: manifest.Symlink, Target: "/"}, d}
		},
		"folders without end": func(w manifest.Writer) []manifest.Entry {
			d := manifest.Entry{Kind: manifest.Dir, Mode: 0o755}
			if err := w.Dir(&d, nil); err != nil {
				t.Fatal(err)
			}
			for range 6 { // 100^6
				var es []manifest.Entry
				for i := range 100 {
					e := d
					e.Name = fmt.Sprint(i)
					es = append(es, e)
				}
				if err := w.Dir(&d, es); err != nil {
					t.Fatal(err)
				}
			}
			d.Name = "d"
			return []manifest.Entry{d}
		},
		"more than the disk": func(w manifest.Writer) []manifest.Entry {
			r, err := w.Put(noise(chunk.MaxSize, 1))
			if err != nil {
				t.Fatal(err)
			}
			refs := make([]manifest.Ref, 8000)
			for i := range refs {
				refs[i] = r
			}
			c, err := w.Content(refs)
			if err != nil {
				t.Fatal(err)
			}
			return []manifest.Entry{{Name: "x", Kind: manifest.File, Size: 8000 << 20, Body: c}}
		},
	} {
		if name == "folders without end" && testing.Short() {
			continue
		}
		p := newPlatform(t)
		s := (&sender{remote: &remote{server: p.Serve, http: http.DefaultClient, least: time.Millisecond}, keys: keys,
			snapshot: "snp_x", known: manifest.NewIndex(), stored: func([]manifest.Ref) error { return nil }}).start(t.Context())
		w := manifest.Writer{Put: func(b []byte) (manifest.Ref, error) { return s.put(manifestPacks, b) }}
		root := manifest.Root{Dir: manifest.Entry{Kind: manifest.Dir, Mode: 0o755}}
		if err := w.Dir(&root.Dir, entries(w)); err != nil {
			t.Fatal(err)
		}
		ref, err := w.Root(root)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.finish(); err != nil {
			t.Fatal(err)
		}
		p.Snapshots = []agentapi.Snapshot{{ID: "snp_x", Seq: 1, Root: placeOf(ref)}}
		v, err := Open(t.Context(), p.config(newRoot(t)))
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		err = v.Restore(ctx, nil)
		t.Logf("%s: %v", name, err)
		if err == nil && name != "a link and a folder behind it" {
			t.Errorf("%s: restored", name)
		}
		cancel()
		v.Close()
	}
}

// When the workload fills the volume, clones go before it sees a full disk; the snapshot after that is whole again.
func TestClonesMakeRoom(t *testing.T) {
	t.Parallel()
	p, root := newPlatform(t), newRoot(t)
	v := p.attach(t, root)
	a := filepath.Join(dataOf(root), "a")
	write(t, a, 200<<20, 1)
	v.mustSnapshot(t)
	var st unix.Statfs_t
	if err := unix.Statfs(root, &st); err != nil {
		t.Fatal(err)
	}
	fill, err := os.Create(filepath.Join(dataOf(root), "fill"))
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Fallocate(int(fill.Fd()), 0, 0, int64(st.Bavail-st.Blocks/100)*st.Bsize); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(a); err != nil {
		t.Fatal(err)
	}
	before := st.Bavail
	v.MakeRoom() // only the clone holds these blocks
	eventually(t, fmt.Sprintf("more room than %d blocks", before), func() bool {
		return unix.Statfs(root, &st) == nil && st.Bavail*uint64(st.Bsize) > 190<<20
	})
	fill.Close()
	if err := os.Remove(fill.Name()); err != nil {
		t.Fatal(err)
	}
	write(t, a, 1<<20, 2)
	if r := v.mustSnapshot(t); r.Seq != 2 {
		t.Errorf("%+v", r)
	}
}

// sliceOf is a child process that snapshots a volume until it is killed at a step.
func snapshotOnce() {
	var c struct{ Root, URL, ID, Step string }
	if err := json.Unmarshal([]byte(os.Getenv("VOLUME_TEST_DIR")), &c); err != nil {
		panic(err)
	}
	reached = func(step string) {
		if step == c.Step {
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {}
		}
	}
	p := platform{}
	cfg := p.config(c.Root)
	cfg.Server = func(_ context.Context, q agentapi.VolumeRequest) (reply agentapi.VolumeReply, err error) {
		b, err := json.Marshal(q)
		if err != nil {
			return reply, err
		}
		res, err := http.Post(c.URL, "application/json", strings.NewReader(string(b)))
		if err != nil {
			return reply, err
		}
		defer res.Body.Close()
		return reply, json.NewDecoder(res.Body).Decode(&reply)
	}
	v, err := Open(context.Background(), cfg)
	if err == nil {
		err = v.Restore(context.Background(), nil)
	}
	if err == nil {
		q := newRequest()
		q.ID = c.ID
		_, err = v.Snapshot(context.Background(), q)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// Whenever the process is killed, the snapshot goes on under its id, shows the moment of its cut, and what was stored
// is not sent again.
func TestAKillAtAnyStep(t *testing.T) {
	t.Parallel()
	for _, step := range []string{"cut", "recorded", "pack", "stored", "committed", "noted"} {
		t.Run(step, func(t *testing.T) {
			t.Parallel()
			p, root := newPlatform(t), newRoot(t)
			control := p.control(t)
			write(t, filepath.Join(dataOf(root), "a"), 40<<20, 1)
			first := listing(t, dataOf(root))
			q := newRequest()
			run := func(step string) error {
				b, err := json.Marshal(struct{ Root, URL, ID, Step string }{root, control, q.ID, step})
				if err != nil {
					t.Fatal(err)
				}
				cmd := exec.CommandContext(t.Context(), os.Args[0])
				cmd.Env = append(os.Environ(), "VOLUME_TEST=snapshot", "VOLUME_TEST_DIR="+string(b))
				out, err := cmd.CombinedOutput()
				if len(out) > 0 {
					t.Logf("%s", out)
				}
				return err
			}
			if err := run(step); err == nil {
				t.Fatal("it was not killed")
			}
			if step != "cut" && step != "committed" && step != "noted" {
				write(t, filepath.Join(dataOf(root), "a"), 100, 7) // the cut was before
			}
			if err := run(""); err != nil {
				t.Fatal(err)
			}
			if n := len(p.Snapshots); n != 1 || p.Snapshots[0].ID != q.ID {
				t.Fatalf("%+v", p.Snapshots)
			}
			if p.Puts > 60<<20 {
				t.Errorf("%d bytes were sent for 40 MiB", p.Puts)
			}
			two := newRoot(t)
			p.attach(t, two)
			if got := listing(t, dataOf(two)); !sameFiles(first, got) {
				t.Errorf("restored:\n%s\nwant:\n%s", got, first)
			}
		})
	}
}

// sameFiles compares two listings without the times of the root.
func sameFiles(a, b string) bool {
	_, a, _ = strings.Cut(a, "\n")
	_, b, _ = strings.Cut(b, "\n")
	return a == b
}

// control is the control plane over HTTP, for child processes.
func (p platform) control(t *testing.T) string {
	t.Helper()
	l := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var q agentapi.VolumeRequest
		b, err := io.ReadAll(r.Body)
		if err == nil {
			err = json.Unmarshal(b, &q)
		}
		reply, serr := p.Serve(r.Context(), q)
		if err = errors.Join(err, serr); err == nil {
			err = json.NewEncoder(w).Encode(reply)
		}
		if err != nil {
			t.Log(err)
		}
	})}
	return serveOn(t, l)
}
