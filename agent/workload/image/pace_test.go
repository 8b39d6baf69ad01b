package image

import (
	"crypto/rand"
	"errors"
	"io"
	"net/http"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/iotest"
	"time"

	"github.com/musterhq/muster/internal/agentapi"
)

// clockReader gives size bytes, each Read after a while of a clock that it moves.
type clockReader struct {
	now  *time.Time
	each time.Duration
	n    int
}

func (r clockReader) Read(b []byte) (int, error) {
	*r.now = r.now.Add(r.each)
	return min(r.n, len(b)), nil
}

// A registry is too slow when what it sends is little for the time in which it alone was waited for.
func TestWhenARegistryIsTooSlow(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name         string
		bytes        int           // of one read
		reads, other time.Duration // how long a read takes, and what comes between two
		slow         bool
	}{
		{"quick", 2_000_000, time.Second, 0, false},
		{"a byte a second", 1, time.Second, 0, true},
		{"just under", 990_000, time.Second, 0, true},
		{"just over", 1_010_000, time.Second, 0, false},
		{"quick, with a slow disk", 2_000_000, time.Second, time.Minute, false},
		{"slow, with a slow disk", 500_000, time.Second, time.Minute, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			now := time.Unix(1e9, 0)
			p := &pace{now: func() time.Time { return now }}
			body, done := p.from(clockReader{&now, tc.reads, tc.bytes})
			b := make([]byte, 4<<20)
			for range 300 {
				if _, err := body.Read(b); err != nil {
					t.Fatal(err)
				}
				now = now.Add(tc.other)
			}
			done()
			if err := p.slow(); (err != nil) != tc.slow {
				t.Error(err)
			}
			now = now.Add(time.Hour) // nothing is under way
			if err := p.slow(); (err != nil) != tc.slow {
				t.Error("time without a layer counts:", err)
			}
		})
	}
}

// Two layers at once, one of which comes quickly, are not slow, however long the other takes.
func TestAQuickLayerBesideASlowOne(t *testing.T) {
	t.Parallel()
	now := time.Unix(1e9, 0)
	p := &pace{now: func() time.Time { return now }}
	_, done := p.from(iotest.ErrReader(io.EOF)) // the daemon is busy with it
	defer done()
	body, done2 := p.from(clockReader{&now, time.Second, 1})
	defer done2()
	for range 300 {
		if _, err := body.Read(make([]byte, 10)); err != nil {
			t.Fatal(err)
		}
	}
	if err := p.slow(); err != nil {
		t.Error(err)
	}
}

// A registry that sends a layer in trickles ends the pull for good, with its reason; one that never ends a manifest
// counts as one that does not answer.
func TestATricklingRegistry(t *testing.T) {
	t.Parallel()
	content := make([]byte, 1<<20)
	_, _ = rand.Read(content)
	slow := layer(t, map[string][]byte{"a": content})
	digest, err := slow.Digest()
	if err != nil {
		t.Fatal(err)
	}
	body, err := slow.Compressed()
	if err != nil {
		t.Fatal(err)
	}
	packed, err := io.ReadAll(body)
	if err != nil {
		t.Fatal(err)
	}
	begun := make(chan struct{})
	begin := sync.OnceFunc(func() { close(begun) })
	var mute atomic.Bool
	reg := serve(t, func(h http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			switch {
			case r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, "/blobs/"+digest.String()):
				w.Header().Set("Content-Length", strconv.Itoa(len(packed)))
				_, _ = w.Write(packed[:3000])
				w.(http.Flusher).Flush()
				begin()
				<-r.Context().Done()
			case mute.Load() && strings.Contains(r.URL.Path, "/manifests/"):
				w.(http.Flusher).Flush()
				<-r.Context().Done()
			default:
				h.ServeHTTP(w, r)
			}
		})
	})
	e := setUp(t, reg)
	push(t, reg+"/trickle:1", build(t, runtime.GOARCH, slow))
	var looks atomic.Int64
	e.puller.cfg.Now = func() time.Time { // once the layer has begun, minutes pass between two looks
		select {
		case <-begun:
			return time.Unix(1e9, 0).Add(time.Duration(looks.Add(1)) * slowAfter)
		default:
			return time.Unix(1e9, 0)
		}
	}
	e.pull(Request{Image: reg + "/trickle:1"}, agentapi.ReasonRegistrySlow)

	mute.Store(true)
	_, err = e.puller.lookWithin(t.Context(), time.Millisecond, Request{Image: reg + "/trickle:1", MaxBytes: 1 << 30})
	var away *Away
	if !errors.As(err, &away) || away.Why != "does not answer in time" || away.Registry != reg {
		t.Errorf("%v", err)
	}
}
