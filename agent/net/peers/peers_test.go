package peers

import (
	"bytes"
	"context"
	"crypto/sha256"
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

	accept time.Duration
}

type rank struct {
	s *Server
	g *Group
}

// newField makes n ranks at loopback addresses. Those in absent do not listen.
func newField(t *testing.T, n, packs int, absent ...int) *field {
	t.Helper()
	return newPatientField(t, 300*time.Millisecond, n, packs, absent...)
}

// newPatientField is newField with ranks that wait for so long until an owner accepts a request.
func newPatientField(t *testing.T, accept time.Duration, n, packs int, absent ...int) *field {
	t.Helper()
	f := &field{packs: map[int64][]byte{}, gets: map[int64]int{}, accept: accept}
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
	s.times = times{accept: f.accept, begin: max(2*time.Second, f.accept), whole: max(5*time.Second, f.accept),
		pace: max(400*time.Millisecond, f.accept)}
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

// owned returns a pack whose first owner is rank by, and whose second owner is not rank besides.
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
	f := newPatientField(t, 20*time.Second, 5, 60) // a busy machine makes no owner too slow
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
