package peers

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/musterhq/muster/internal/data/chunk"
)

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
