package line

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// echo is a store: it takes what is sent, and sends size bytes.
func echo(t *testing.T, size int) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		if r.Method == http.MethodGet {
			_, _ = w.Write(make([]byte, size))
		}
	}))
	t.Cleanup(s.Close)
	return s.URL
}

func always(netip.Addr) bool { return true }

func open(t *testing.T, limits Limits, onLine func(netip.Addr) bool) *Line {
	t.Helper()
	l := Open(Config{File: filepath.Join(t.TempDir(), "moved"), Limits: limits, OnLine: onLine})
	t.Cleanup(func() { _ = l.Close() })
	return l
}

// exchange sends size bytes, or receives what the store sends if size is 0.
func exchange(t *testing.T, l *Line, url string, size int) {
	t.Helper()
	method, body := http.MethodPut, io.Reader(bytes.NewReader(make([]byte, size)))
	if size == 0 {
		method, body = http.MethodGet, http.NoBody
	}
	q, err := http.NewRequestWithContext(t.Context(), method, url, body)
	if err != nil {
		t.Fatal(err)
	}
	res, err := l.Client().Do(q)
	if err != nil {
		t.Error(err)
		return
	}
	defer res.Body.Close()
	if _, err := io.Copy(io.Discard, res.Body); err != nil {
		t.Error(err)
	}
}

func moved(t *testing.T, l *Line) Moved {
	t.Helper()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	m, err := Read(l.cfg.File)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// about checks that n bytes of data were counted, with headers and nothing else.
func about(t *testing.T, what string, got, data int64) {
	t.Helper()
	if got < data || got > data+data/10+4<<10 {
		t.Errorf("%s: %d bytes were counted, of %d", what, got, data)
	}
}

// What is sent and received is counted, with the packets' headers, over the processes of a lease; a process that was
// killed had written it. What is not on the line is not counted.
func TestTheLineIsCounted(t *testing.T) {
	t.Parallel()
	const size = 4 << 20
	url := echo(t, size)
	l := open(t, Limits{}, always)
	exchange(t, l, url, 0)
	m := moved(t, l)
	about(t, "received", m.Down, size)
	if m.Up < 100 || m.Up > size/10 {
		t.Errorf("acknowledgements of %d bytes", m.Up)
	}
	exchange(t, l, url, size)
	about(t, "sent", moved(t, l).Up-m.Up, size)

	next := Open(l.cfg) // of a process that was killed, nothing more is known
	exchange(t, next, url, 0)
	if err := next.Note(); err != nil {
		t.Fatal(err)
	}
	m, err := Read(l.cfg.File)
	if err != nil {
		t.Fatal(err)
	}
	about(t, "by both processes", m.Down, 2*size)
	about(t, "by both processes", m.Up, size)

	near := open(t, Limits{UpMbps: 1, DownMbps: 1}, func(a netip.Addr) bool { return !a.IsLoopback() })
	exchange(t, near, url, 0) // it would take half a minute
	if m := moved(t, near); m != (Moved{}) {
		t.Errorf("what is not on the line is counted: %+v", m)
	}
	if err := os.WriteFile(l.cfg.File, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Read(l.cfg.File); err == nil {
		t.Error("a file that is cut off is read")
	}
}

// All connections of a lease together keep to its limits, in each direction. Another lease has its own.
func TestTheLineIsLimited(t *testing.T) {
	t.Parallel()
	const size = 1 << 20 // at 8 Mbit/s for three of them, without what may come at once: 2.8 s
	url := echo(t, size)
	for _, c := range []struct {
		name string
		size int
	}{{"received", 0}, {"sent", size}} {
		l := open(t, Limits{UpMbps: 8, DownMbps: 8}, always)
		begun := time.Now()
		var all sync.WaitGroup
		for range 3 {
			all.Go(func() { exchange(t, l, url, c.size) })
		}
		all.Wait()
		if took := time.Since(begun); took < 2500*time.Millisecond {
			t.Errorf("%s in %s", c.name, took)
		}
		m := moved(t, l)
		about(t, c.name, max(m.Up, m.Down), 3*size)
	}
}

// A limit that is lifted, or raised, lets what waits go on: 8 MiB at 1 Mbit/s are more than a minute.
func TestAHurryLiftsTheLimit(t *testing.T) {
	t.Parallel()
	url := echo(t, 0)
	for name, lift := range map[string]func(*Line){
		"hurry":  func(l *Line) { l.Hurry("a", true); l.Hurry("b", true); l.Hurry("b", false) },
		"raised": func(l *Line) { l.SetLimits(Limits{}) },
	} {
		l := open(t, Limits{UpMbps: 1}, always)
		begun := time.Now()
		done := make(chan struct{})
		go func() {
			defer close(done)
			exchange(t, l, url, 8<<20)
		}()
		for l.sent() == 0 {
			time.Sleep(time.Millisecond)
		}
		lift(l)
		<-done
		if took := time.Since(begun); took > 40*time.Second {
			t.Errorf("%s: it took %s", name, took)
		}
		l.Hurry("a", false)
		if name == "hurry" && l.up.Limit() != 1e6/8 {
			t.Errorf("afterwards the limit is %v", l.up.Limit())
		}
	}
}

func (l *Line) sent() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.moved().Up
}

// A connection that waits for its turn on the line ends when it is closed.
func TestAConnectionThatWaitsIsClosed(t *testing.T) {
	t.Parallel()
	url := echo(t, 0)
	l := open(t, Limits{UpMbps: 1}, always)
	for range 100 { // it waits for minutes
		l.up.ReserveN(time.Now(), l.up.Burst())
	}
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		for l.sent() == 0 {
			time.Sleep(time.Millisecond)
		}
		cancel()
	}()
	q, err := http.NewRequestWithContext(ctx, http.MethodPut, url, bytes.NewReader(make([]byte, 1<<20)))
	if err != nil {
		t.Fatal(err)
	}
	if res, err := l.Client().Do(q); err == nil {
		res.Body.Close()
		t.Error("it did not wait")
	}
	for end := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		l.mu.Lock()
		left := len(l.conns)
		l.mu.Unlock()
		if left == 0 {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("%d connections are open", left)
		}
	}
}

// A lease has at most Streams turns at once, and one that gives up takes none.
func TestTurns(t *testing.T) {
	t.Parallel()
	l := open(t, Limits{}, always)
	var now, most atomic.Int64
	var all sync.WaitGroup
	for range 4 * Streams {
		all.Go(func() {
			done, err := l.Turn(t.Context())
			if err != nil {
				t.Error(err)
				return
			}
			defer done()
			n := now.Add(1)
			defer now.Add(-1)
			for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
			}
			time.Sleep(time.Millisecond)
		})
	}
	all.Wait()
	if most.Load() > Streams {
		t.Errorf("%d at once", most.Load())
	}
	var dones []func()
	for range Streams {
		done, err := l.Turn(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		dones = append(dones, done)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := l.Turn(ctx); err == nil {
		t.Error("one turn too many")
	}
	dones[0]()
	if _, err := l.Turn(t.Context()); err != nil {
		t.Error(err)
	}
}
