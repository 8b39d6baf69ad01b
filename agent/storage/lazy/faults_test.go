package lazy

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/agent/storage/lazy/lazytest"
	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/data/store"
	"github.com/musterhq/muster/internal/testing/s3test"
)

// behind puts faults before the store of a world.
func (w *world) behind() *s3test.Faults {
	w.t.Helper()
	f := s3test.Behind(w.t, w.gateway.Config)
	through, err := store.OpenS3(f.Config)
	w.must(err)
	sign := w.p.Sign
	w.p.Sign = func(ctx context.Context, n int64, until time.Time) (agentapi.PackURL, error) {
		u, err := sign(ctx, n, until)
		if err != nil {
			return u, err
		}
		r, err := through.SignGet(ctx, packKey(n), until)
		u.Method, u.URL, u.Header = r.Method, r.URL, r.Header
		return u, err
	}
	return f
}

// What passes is waited for and read again; what does not fails the read, and is named until the store is well. Nothing
// but the bytes that were stored is ever returned.
func TestABadStore(t *testing.T) {
	var files []*lazytest.Entry
	content := map[string][]byte{}
	for i := range 12 {
		name := fmt.Sprintf("f%02d", i)
		content[name] = noise(byte(20+i), 600<<10)
		files = append(files, lazytest.File(name, content[name]))
	}
	w := newWorld(t, lazytest.Dir("", files...))
	f := w.behind()
	w.mounted()
	next := 0
	file := func() string { next++; return fmt.Sprintf("f%02d", next-1) }
	for what, do := range map[string]s3test.Fault{
		"busy": s3test.Answers(503, "SlowDown"), "refuses": s3test.Answers(403, "AccessDenied"), "cut off": s3test.Cuts,
		"a bit": s3test.Flips(), "short": s3test.Shortens(), "lost": s3test.Answers(404, "NoSuchKey"),
	} {
		name := file()
		hits := f.Times(1, s3test.Gets, do)
		w.same(name, content[name])
		if hits() != 1 {
			t.Errorf("%s: %d requests were answered so", what, hits())
		}
		f.Heal()
	}
	for _, c := range []struct {
		do   s3test.Fault
		want string
	}{
		{s3test.Answers(503, "SlowDown"), "the store is overloaded: it answers a read with status 503 SlowDown"},
		{s3test.Answers(404, "NoSuchKey"), "the store has lost pack 1 of the volume: /%s cannot be read"},
		{s3test.Flips(), "the store has other bytes in pack 1 of the volume than were stored: /%s cannot be read"},
		{s3test.Answers(200, ""), "the store does not answer a range as it was requested"},
	} {
		name := file()
		want := strings.ReplaceAll(c.want, "%s", name)
		f.When(s3test.Gets, c.do)
		if _, err := os.ReadFile(w.at(name)); !errors.Is(err, unix.EIO) {
			t.Errorf("%s: %v", want, err)
		}
		w.await(want, func(s State) bool { return strings.Contains(s.Reading, want) })
		w.reported(want)
		f.Heal()
		w.same(name, content[name])
		w.await("well again", func(s State) bool { return s.Reading == "" })
	}
}

// While the store hangs, many readers take neither memory nor threads without a bound, and all of them get an answer in
// the end: an error, and then the bytes.
func TestManyReadersOfAStoreThatHangs(t *testing.T) {
	big := noise(40, 48<<20)
	w := newWorld(t, lazytest.Dir("", lazytest.File("big", big)))
	f := w.behind()
	w.mounted()
	status := func(field string) (n int) {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", w.pid()))
		w.must(err)
		for line := range strings.Lines(string(b)) {
			if rest, ok := strings.CutPrefix(line, field+":"); ok {
				n, _ = strconv.Atoi(strings.Fields(rest)[0])
			}
		}
		return n
	}
	hits := f.When(s3test.Gets, f.Hangs())
	var readers errgroup.Group
	for i := range 64 {
		readers.Go(func() error {
			r, err := os.Open(w.at("big"))
			if err != nil {
				return err
			}
			defer r.Close()
			_, err = r.ReadAt(make([]byte, 4096), int64(i)*(700<<10))
			return err
		})
	}
	for end := time.Now().Add(20 * time.Second); hits() < 8; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d requests", hits())
		}
	}
	if rss, threads := status("VmRSS"), status("Threads"); rss > 256<<10 || threads > 128 || hits() > 16 {
		t.Errorf("%d KiB, %d threads, %d requests for 64 readers that wait", rss, threads, hits())
	}
	f.Heal()
	f.When(s3test.Gets, func(http.ResponseWriter, *http.Request, http.Handler) { panic(http.ErrAbortHandler) })
	if err := readers.Wait(); !errors.Is(err, unix.EIO) {
		t.Errorf("%v", err)
	}
	f.Heal()
	w.same("big", big)
	w.await("well again", func(s State) bool { return s.Reading == "" })
}
