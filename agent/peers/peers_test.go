package peers

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/musterhq/muster/internal/data/chunk"
)

const volumeID = "vol_test"

// field is a store and the ranks of a cluster that restore from it.
type field struct {
	cluster Cluster
	packs   map[int64][]byte
	ranks   []*rank

	mu    sync.Mutex
	gets  map[int64]int // from the store, by pack
	delay time.Duration // of the store
}

type rank struct {
	s *Server
	g *Group
}

// newField makes n ranks at loopback addresses. Those in absent do not listen.
func newField(t *testing.T, n, packs int, absent ...int) *field {
	t.Helper()
	f := &field{packs: map[int64][]byte{}, gets: map[int64]int{}}
	random := rand.NewChaCha8([32]byte{1})
	for i := range packs {
		b := make([]byte, 100_000+i)
		_, _ = random.Read(b)
		f.packs[int64(i+1)] = b
	}
	for i := range n {
		f.cluster.Ranks = append(f.cluster.Ranks, Rank{Rank: i, Address: freeAddress(t)})
	}
	for i := range n {
		c := f.cluster
		c.Rank = i
		r := &rank{}
		if !slices.Contains(absent, i) {
			r = f.start(t, c, keysOf(t, 1))
		}
		f.ranks = append(f.ranks, r)
	}
	return f
}

func (f *field) start(t *testing.T, c Cluster, keys *chunk.Keys) *rank {
	t.Helper()
	s := NewServer(c, slog.New(slog.DiscardHandler))
	s.times = times{accept: 300 * time.Millisecond, begin: 2 * time.Second, whole: 5 * time.Second,
		pace: 400 * time.Millisecond}
	g := s.Join(volumeID, keys, slog.New(slog.DiscardHandler))
	dir, err := os.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { g.Close(); s.Close(); dir.Close() })
	g.Offer(Source{Has: func(n int64) bool { return f.packs[n] != nil }, Fetch: f.fetch}, dir, 1<<30)
	return &rank{s, g}
}

func (f *field) fetch(_ context.Context, n int64) ([]byte, error) {
	f.mu.Lock()
	f.gets[n]++
	f.mu.Unlock()
	time.Sleep(f.delay)
	return f.packs[n], nil
}

func (f *field) total() (n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, k := range f.gets {
		n += k
	}
	return n
}

// get gets a pack as a restore does, by a rank; alone reports whether it had to read the store itself.
func (f *field) get(ctx context.Context, r *rank, n int64) (b []byte, alone bool, err error) {
	sum := sha256.Sum256(f.packs[n])
	b, err = r.g.Pack(ctx, n, int64(len(f.packs[n])), sum[:])
	if err != nil && ctx.Err() == nil {
		b, err = f.fetch(ctx, n)
		return b, true, err
	}
	return b, false, err
}

func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

func keysOf(t *testing.T, seed byte) *chunk.Keys {
	t.Helper()
	k, err := chunk.NewKeys(bytes.Repeat([]byte{seed}, chunk.KeySize))
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// owned returns a pack whose first owner is a rank, and whose second one is not besides.
func (f *field) owned(t *testing.T, by int, besides int) int64 {
	t.Helper()
	for n := range f.packs {
		if o := f.cluster.owners(volumeID, n); o[0] == by && o[1] != besides {
			return n
		}
	}
	t.Fatalf("rank %d owns nothing", by)
	return 0
}

// Several ranks get all packs at the same time: the store gives each of them once.
func TestPack_TheStoreIsReadOnce(t *testing.T) {
	t.Parallel()
	f := newField(t, 5, 60)
	f.delay = 5 * time.Millisecond
	var all sync.WaitGroup
	for i, r := range f.ranks {
		all.Go(func() {
			var ns []int64
			for n := range f.packs {
				ns = append(ns, n)
			}
			var workers sync.WaitGroup
			order := r.g.Order(ns)
			for w := range 3 {
				workers.Go(func() {
					for k := w; k < len(order); k += 3 {
						b, _, err := f.get(t.Context(), r, order[k])
						if err != nil || !bytes.Equal(b, f.packs[order[k]]) {
							t.Errorf("rank %d, pack %d: %d bytes, %v", i, order[k], len(b), err)
						}
					}
				})
			}
			workers.Wait()
		})
	}
	all.Wait()
	if n := f.total(); n != len(f.packs) {
		t.Errorf("the store was read %d times for %d packs", n, len(f.packs))
	}
	for i, r := range f.ranks {
		if st := r.g.Stats(); st.Alone != 0 || st.Sent == 0 || st.Peers == 0 || st.Own == 0 {
			t.Errorf("rank %d: %+v", i, st)
		}
	}
}

// Another program listens on a rank's port, or none does: the pack comes from its second owner or the store,
// within the deadlines, and it is the right one.
func TestPack_HostilePeers(t *testing.T) {
	t.Parallel()
	answer := func(h func(w http.ResponseWriter, f *field, n int64)) func(*testing.T, *field, net.Listener) {
		return func(t *testing.T, f *field, l net.Listener) {
			s := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				n, _ := strconv.ParseInt(r.URL.Path[len("/c/"+volumeID+"/"):], 10, 64)
				h(w, f, n)
			})}
			go func() { _ = s.Serve(l) }()
			t.Cleanup(func() { s.Close() })
		}
	}
	for name, serve := range map[string]func(*testing.T, *field, net.Listener){
		"garbage": answer(func(w http.ResponseWriter, f *field, n int64) {
			_, _ = w.Write(bytes.Repeat([]byte{7}, len(f.packs[n])))
		}),
		"one bit is wrong": answer(func(w http.ResponseWriter, f *field, n int64) {
			b := bytes.Clone(f.packs[n])
			b[len(b)/2] ^= 1
			_, _ = w.Write(b)
		}),
		"another pack": answer(func(w http.ResponseWriter, f *field, n int64) { _, _ = w.Write(f.packs[n%10+1]) }),
		"too short": answer(func(w http.ResponseWriter, f *field, n int64) {
			_, _ = w.Write(f.packs[n][:len(f.packs[n])-1])
		}),
		"endless": answer(func(w http.ResponseWriter, f *field, n int64) {
			for {
				if _, err := w.Write(f.packs[n]); err != nil {
					return
				}
			}
		}),
		"cut off": answer(func(w http.ResponseWriter, f *field, n int64) {
			_, _ = w.Write(f.packs[n][:50_000])
			panic(http.ErrAbortHandler)
		}),
		"a drip": answer(func(w http.ResponseWriter, f *field, n int64) {
			for _, b := range f.packs[n] {
				if _, err := w.Write([]byte{b}); err != nil {
					return
				}
				_ = http.NewResponseController(w).Flush()
				time.Sleep(20 * time.Millisecond)
			}
		}),
		"accepts, then nothing": answer(func(w http.ResponseWriter, _ *field, _ int64) {
			_ = http.NewResponseController(w).Flush()
			time.Sleep(5 * time.Second)
		}),
		"a redirect": func(t *testing.T, f *field, l net.Listener) {
			elsewhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
				t.Error("the process was sent elsewhere")
			}))
			t.Cleanup(elsewhere.Close)
			answer(func(w http.ResponseWriter, _ *field, _ int64) {
				w.Header().Set("Location", elsewhere.URL)
				w.WriteHeader(http.StatusFound)
			})(t, f, l)
		},
		"refuses": answer(func(w http.ResponseWriter, _ *field, _ int64) { w.WriteHeader(http.StatusForbidden) }),
		"huge headers": answer(func(w http.ResponseWriter, f *field, n int64) {
			w.Header().Set("X", string(bytes.Repeat([]byte("x"), 1<<20)))
			_, _ = w.Write(f.packs[n])
		}),
		"listens, never answers": func(t *testing.T, _ *field, l net.Listener) {},
		"is no HTTP": func(t *testing.T, _ *field, l net.Listener) {
			go func() {
				for {
					c, err := l.Accept()
					if err != nil {
						return
					}
					_, _ = c.Write([]byte("SSH-2.0-x\r\n"))
					c.Close()
				}
			}()
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newField(t, 3, 40, 1)
			l, err := net.Listen("tcp", f.cluster.Ranks[1].Address)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { l.Close() })
			serve(t, f, l)
			n := f.owned(t, 1, 0) // its second owner is rank 2
			begun := time.Now()
			b, alone, err := f.get(t.Context(), f.ranks[0], n)
			took := time.Since(begun)
			if err != nil || !bytes.Equal(b, f.packs[n]) {
				t.Fatalf("%d bytes, %v", len(b), err)
			}
			if alone {
				t.Error("the second owner was not asked")
			}
			if took > 4*time.Second {
				t.Errorf("it took %s", took)
			}
			if !f.ranks[0].g.avoided(1) {
				t.Error("the bad peer is not left alone")
			}
			if _, alone, err := f.get(t.Context(), f.ranks[0], f.owned(t, 1, 0)); alone || err != nil {
				t.Errorf("the next pack: %v, %v", alone, err)
			}
		})
	}
}

// A rank that is not there yet is waited for; one that never comes, such as an agent of an older version, is given up.
func TestPack_AbsentPeers(t *testing.T) {
	t.Parallel()
	t.Run("comes later", func(t *testing.T) {
		t.Parallel()
		f := newField(t, 3, 40, 1)
		c := f.cluster
		c.Rank = 1
		time.AfterFunc(500*time.Millisecond, func() { f.ranks[1] = f.start(t, c, keysOf(t, 1)) })
		n := f.owned(t, 1, -1)
		if _, alone, err := f.get(t.Context(), f.ranks[0], n); alone || err != nil || f.ranks[0].g.avoided(1) {
			t.Errorf("alone %v, %v", alone, err)
		}
	})
	t.Run("never comes", func(t *testing.T) {
		t.Parallel()
		f := newField(t, 3, 40, 1, 2)
		f.ranks[0].g.begun = time.Now().Add(-startIn)
		n := f.owned(t, 1, 0)
		if b, alone, err := f.get(t.Context(), f.ranks[0], n); !alone || err != nil || !bytes.Equal(b, f.packs[n]) {
			t.Errorf("alone %v, %v", alone, err)
		}
	})
	t.Run("has restored", func(t *testing.T) {
		t.Parallel()
		f := newField(t, 3, 40)
		f.ranks[0].g.begun = time.Now().Add(-startIn)
		f.ranks[1].g.Close()
		f.ranks[2].g.Close()
		n := f.owned(t, 1, 0)
		if b, alone, err := f.get(t.Context(), f.ranks[0], n); !alone || err != nil || !bytes.Equal(b, f.packs[n]) {
			t.Errorf("alone %v, %v", alone, err)
		}
	})
}

// What is not signed with the key of the domain, for this rank, this volume, this pack and this minute is refused, and
// nothing is read from the store for it.
func TestServe_Unsigned(t *testing.T) {
	t.Parallel()
	f := newField(t, 2, 40)
	addr, n := f.cluster.Ranks[1].Address, f.owned(t, 1, -1)
	now := minuteOf(time.Now())
	sign := func(k *chunk.Keys, volume string, n int64, addr string, minute int64) string {
		return fmt.Sprintf("%d %x", minute, k.Sign(signed(volume, n, addr, minute)))
	}
	k := keysOf(t, 1)
	for name, c := range map[string]struct {
		field string
		want  int
	}{
		"nothing":         {"", http.StatusForbidden},
		"no code":         {strconv.FormatInt(now, 10), http.StatusForbidden},
		"an empty code":   {strconv.FormatInt(now, 10) + " ", http.StatusForbidden},
		"another domain":  {sign(keysOf(t, 2), volumeID, n, addr, now), http.StatusForbidden},
		"another volume":  {sign(k, "vol_other", n, addr, now), http.StatusForbidden},
		"another pack":    {sign(k, volumeID, n+1, addr, now), http.StatusForbidden},
		"another rank":    {sign(k, volumeID, n, f.cluster.Ranks[0].Address, now), http.StatusForbidden},
		"an old minute":   {sign(k, volumeID, n, addr, now-3), http.StatusForbidden},
		"a later minute":  {sign(k, volumeID, n, addr, now+3), http.StatusForbidden},
		"the ends of int": {"-9223372036854775808 00", http.StatusForbidden},
	} {
		if got := status(t, addr, fmt.Sprintf("/c/%s/%d", volumeID, n), c.field); got != c.want {
			t.Errorf("%s: status %d", name, got)
		}
	}
	if got := status(t, addr, fmt.Sprintf("/c/%s/%d", volumeID, 999), sign(k, volumeID, 999, addr, now)); got != 404 {
		t.Errorf("a pack of another snapshot: status %d", got)
	}
	for _, path := range []string{"/", "/c/", "/c/x", "/c/" + volumeID + "/0", "/c/" + volumeID + "/-1", "/c/../c"} {
		if got := status(t, addr, path, ""); got != 404 {
			t.Errorf("%s: status %d", path, got)
		}
	}
	if f.total() != 0 {
		t.Error("the store was read")
	}
	if got := status(t, addr, fmt.Sprintf("/c/%s/%d", volumeID, n), sign(k, volumeID, n, addr, now)); got != 200 {
		t.Errorf("the right code: status %d", got)
	}
}

func status(t *testing.T, addr, path, field string) int {
	t.Helper()
	q, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+addr+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	q.Header.Set(header, field)
	res, err := http.DefaultTransport.RoundTrip(q)
	if err != nil {
		t.Fatal(err)
	}
	res.Body.Close()
	return res.StatusCode
}

// A program in the same network opens as many connections as it can and sends nothing, or headers without end. The
// other ranks get their packs, from here or from the store, and once it stops, from here again.
func TestServe_Flood(t *testing.T) {
	t.Parallel()
	f := newField(t, 2, 40)
	n := f.owned(t, 1, -1)
	ctx, stop := context.WithCancel(t.Context())
	var flood sync.WaitGroup
	for i := range maxConns + 50 {
		flood.Go(func() {
			d := net.Dialer{}
			for ctx.Err() == nil {
				c, err := d.DialContext(ctx, "tcp", f.cluster.Ranks[1].Address)
				if err != nil {
					continue
				}
				end := context.AfterFunc(ctx, func() { c.Close() })
				if i%2 == 0 {
					_, _ = c.Write([]byte("GET / HTTP/1.1\r\nX: "))
				}
				_, _ = c.Read(make([]byte, 1<<10))
				end()
				c.Close()
			}
		})
	}
	for range 5 {
		if b, _, err := f.get(t.Context(), f.ranks[0], n); err != nil || !bytes.Equal(b, f.packs[n]) {
			t.Errorf("%d bytes, %v", len(b), err)
		}
	}
	stop()
	flood.Wait()
	f.ranks[0].g.mu.Lock()
	clear(f.ranks[0].g.bad)
	f.ranks[0].g.mu.Unlock()
	deadline := time.Now().Add(20 * time.Second)
	for {
		_, alone, err := f.get(t.Context(), f.ranks[0], n)
		if err == nil && !alone {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("after the flood: alone %v, %v", alone, err)
		}
		f.ranks[0].g.mu.Lock()
		clear(f.ranks[0].g.bad)
		f.ranks[0].g.mu.Unlock()
		time.Sleep(50 * time.Millisecond)
	}
}

// Connections that send nothing, or half a request, are closed soon.
func TestServe_HalfRequests(t *testing.T) {
	t.Parallel()
	f := newField(t, 2, 40)
	for _, text := range []string{"", "GET /c/" + volumeID + "/1 HTTP/1.1\r\nHost: x\r\n"} {
		c, err := net.Dial("tcp", f.cluster.Ranks[1].Address)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		_ = c.SetDeadline(time.Now().Add(10 * time.Second))
		if _, err := c.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
		if _, err := io.Copy(io.Discard, c); err != nil {
			t.Errorf("after %q the connection stays: %v", text, err)
		}
	}
}

// A rank whose port is taken requests packs of the others, and sends none.
func TestServer_PortTaken(t *testing.T) {
	t.Parallel()
	f := newField(t, 2, 40, 0)
	l, err := net.Listen("tcp", f.cluster.Ranks[0].Address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	f.ranks[0] = f.start(t, f.cluster, keysOf(t, 1))
	n := f.owned(t, 1, -1)
	if _, alone, err := f.get(t.Context(), f.ranks[0], n); alone || err != nil {
		t.Errorf("alone %v, %v", alone, err)
	}
	n = f.owned(t, 0, -1)
	if b, _, err := f.get(t.Context(), f.ranks[1], n); err != nil || !bytes.Equal(b, f.packs[n]) {
		t.Errorf("%d bytes, %v", len(b), err)
	}
}

// A server keeps its port when another rank gets another address. It moves when its own rank does.
func TestServer_Update(t *testing.T) {
	t.Parallel()
	f := newField(t, 3, 40)
	owner, asker := f.ranks[0], f.ranks[1]
	sent := 0
	sends := func(when string) {
		t.Helper()
		sent++
		if _, _, err := f.get(t.Context(), asker, f.owned(t, 0, 0)); err != nil {
			t.Fatal(err)
		}
		// An answer is counted a moment after its last byte.
		for end := time.Now().Add(5 * time.Second); owner.g.Stats().Sent != sent; time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("%s, the owner does not send: %+v", when, owner.g.Stats())
			}
		}
	}
	for range 5 {
		c := owner.s.now()
		c.Ranks = slices.Clone(c.Ranks)
		c.Ranks[2].Address = freeAddress(t)
		owner.s.Update(c)
		sends("after another rank has moved")
	}
	moved := freeAddress(t)
	for _, r := range f.ranks[:2] {
		c := r.s.now()
		c.Ranks = slices.Clone(c.Ranks)
		c.Ranks[0].Address = moved
		r.s.Update(c)
	}
	sends("after its own rank has moved")
}

// No more than four packs are sent at the same time, however many are requested, and all that are requested come.
func TestServe_AtOnce(t *testing.T) {
	t.Parallel()
	f := newField(t, 2, 64)
	f.delay = 50 * time.Millisecond
	running, most := 0, 0
	f.ranks[1].g.source.Fetch = nil
	f.ranks[1].g.cache.fetch = func(ctx context.Context, n int64) ([]byte, error) {
		f.mu.Lock()
		running++
		most = max(most, running)
		f.mu.Unlock()
		defer func() { f.mu.Lock(); running--; f.mu.Unlock() }()
		return f.fetch(ctx, n)
	}
	var all sync.WaitGroup
	for n := range f.packs {
		if f.cluster.owners(volumeID, n)[0] != 1 {
			continue
		}
		all.Go(func() {
			if _, alone, err := f.get(t.Context(), f.ranks[0], n); alone || err != nil {
				t.Errorf("alone %v, %v", alone, err)
			}
		})
	}
	all.Wait()
	if most > 4 || most < 2 {
		t.Errorf("%d at once", most)
	}
}

// The cache gives room back in time, never under a reader, and gets again what it gave up.
func TestCache_Limit(t *testing.T) {
	t.Parallel()
	dir, err := os.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { dir.Close() })
	var mu sync.Mutex
	gets := 0
	c := newCache(dir, 1000, func(_ context.Context, n int64) ([]byte, error) {
		mu.Lock()
		defer mu.Unlock()
		gets++
		return bytes.Repeat([]byte{byte(n)}, 300), nil
	})
	first, err := c.use(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	c.release(first)
	held, err := c.use(t.Context(), 1) // from the file
	if err != nil {
		t.Fatal(err)
	}
	from := c.reader(held)
	for n := int64(2); n < 20; n++ {
		p, err := c.use(t.Context(), n)
		if err != nil {
			t.Fatal(err)
		}
		c.release(p)
		if c.size > 1000 {
			t.Fatalf("%d bytes are kept", c.size)
		}
	}
	if b := make([]byte, 300); true {
		if _, err := from.ReadAt(b, 0); err != nil || b[299] != 1 {
			t.Errorf("a pack in use was given up: %v", err)
		}
	}
	c.release(held)
	if p, err := c.use(t.Context(), 19); err != nil || gets != 19 {
		t.Errorf("the last one was got again: %d, %v", gets, err)
	} else if b, err := c.content(p); err != nil || b[0] != 19 || len(b) != 300 {
		t.Errorf("its content: %v", err)
	}
	if _, err := c.use(t.Context(), 1); err != nil || gets != 20 {
		t.Errorf("one that was given up: %d, %v", gets, err)
	}
	c.close()
	if _, err := c.use(t.Context(), 19); !errors.Is(err, errClosed) {
		t.Errorf("after the end: %v", err)
	}
	if names, err := os.ReadDir(dir.Name()); err != nil || len(names) > 0 {
		t.Errorf("files are left: %v, %v", names, err)
	}
}

// All ranks agree on owners, each rank begins with its own packs, and owners of packs stay when another rank leaves.
func TestCluster_Owners(t *testing.T) {
	t.Parallel()
	c := Cluster{}
	for i := range 8 {
		c.Ranks = append(c.Ranks, Rank{Rank: i})
	}
	var packs []int64
	count := map[int]int{}
	for n := range int64(8 * perRank) {
		packs = append(packs, n+1)
		count[c.owners(volumeID, n+1)[0]]++
	}
	for i := range 8 {
		if count[i] < perRank/2 || count[i] > perRank*2 {
			t.Errorf("rank %d owns %d of %d packs", i, count[i], len(packs))
		}
		c.Rank = i
		order := c.order(volumeID, packs)
		if len(order) != len(packs) || c.owners(volumeID, order[0])[0] != i ||
			c.owners(volumeID, order[len(order)-1])[0] != (i+7)%8 {
			t.Errorf("the order of rank %d", i)
		}
	}
	less := Cluster{Ranks: c.Ranks[:7]}
	for _, n := range packs {
		if o := c.owners(volumeID, n)[0]; o != 7 && less.owners(volumeID, n)[0] != o {
			t.Errorf("pack %d moved from rank %d", n, o)
		}
	}
}
