package api_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/serve/api"
)

// fakeHost stands for the hosts that dial back.
type fakeHost struct {
	mu    sync.Mutex
	serve func(agentapi.Dial, io.Writer) // nil: the host is away
}

func (f *fakeHost) open(_ context.Context, _ id.Host, d agentapi.Dial) (io.ReadCloser, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.serve == nil {
		return nil, fault.New(fault.Unavailable, "the host is away")
	}
	r, w := io.Pipe()
	serve := f.serve
	go func() {
		serve(d, w)
		w.Close()
	}()
	return r, nil
}

func (f *fakeHost) set(serve func(agentapi.Dial, io.Writer)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.serve = serve
}

func frame(w io.Writer, ms int64, format string, args ...any) {
	raw, err := json.Marshal(agentapi.LogFrame{TimeMS: ms, Line: fmt.Sprintf(format, args...)})
	if err == nil {
		_, _ = w.Write(append(raw, '\n'))
	}
}

// rented is a provisioning cluster of two nodes.
func (w *world) rented(renter string) string {
	w.t.Helper()
	w.sell(w.user("op"), 8, "2.00")
	w.fund(renter, "100.00")
	return w.want(w.call(renter, "POST", "/api/v1/clusters",
		`{"nodes":2,"gpus_per_node":4,"network":{"scope":"host"},"image":"registry.test/job:1"}`), 202, "").text("id")
}

func TestLogsOfAllRanksInOrder(t *testing.T) {
	t.Parallel()
	w := open(t)
	renter := w.user("ada")
	path := "/api/v1/clusters/" + w.rented(renter) + "/logs"

	if r := w.want(w.call(renter, "GET", path, nil), 200, ""); r.raw != "" ||
		r.Header.Get(api.WaitingHeader) != "rank 0 is pending, rank 1 is pending" {
		t.Errorf("before there is anything to print: %q, %q", r.raw, r.Header)
	}
	if _, err := w.db.Pool.Exec(t.Context(), `UPDATE node SET state = 'ready' WHERE rank = 1`); err != nil {
		t.Fatal(err)
	}
	if r := w.want(w.call(renter, "GET", path+"?node=0", nil), 200,
		""); r.Header.Get(api.WaitingHeader) != "rank 0 is pending" {
		t.Errorf("%q", r.Header)
	}
	if r := w.want(w.call(renter, "GET", path, nil), 503,
		"unavailable"); r.Header.Get(api.WaitingHeader) != "rank 0 is pending" {
		t.Errorf("the host of a rank that has begun is away: %q", r.Header)
	}
	n := 0
	w.host.set(func(_ agentapi.Dial, out io.Writer) {
		n++
		frame(out, int64(1000+n), "hello from %d", n)
		_, _ = io.WriteString(out, "not a frame\n")
		frame(out, int64(2000+n), "bye from %d", n)
	})
	r := w.want(w.call(renter, "GET", path+"?timestamps=true", nil), 200, "")
	want := "1970-01-01T00:00:01.001Z [0] hello from 1\n1970-01-01T00:00:01.002Z [1] hello from " +
		"2\n1970-01-01T00:00:02.001Z [0] bye from 1\n1970-01-01T00:00:02.002Z [1] bye from 2\n"
	if r.raw != want || !strings.HasPrefix(r.Header.Get("Content-Type"), "text/plain") {
		t.Errorf("got\n%s", r.raw)
	}
	if r := w.want(w.call(renter, "GET", path+"?node=1&tail=1", nil), 200, ""); r.raw != "bye from 3\n" {
		t.Errorf("got %q", r.raw)
	}
	if r := w.want(w.call(renter, "GET", path+"?node=1&tail=1&grep=HELLO", nil), 200, ""); r.raw != "hello from 4\n" {
		t.Errorf("searched: %q", r.raw)
	}
	w.host.set(func(_ agentapi.Dial, out io.Writer) {
		_, _ = io.WriteString(out, `{"t":5,"l":"the end","cl":56458,"cb":3387480}`+"\n")
	})
	for _, query := range []string{"?node=1", "?node=1&grep=none", "?node=1&tail=2"} {
		if r := w.want(w.call(renter, "GET", path+query, nil), 200, ""); r.Header.Get(api.CutHeader) !=
			"true; lines=56458; bytes=3387480" {
			t.Errorf("%s: %q", query, r.Header)
		}
	}
	w.want(w.call(renter, "GET", path+"?grep="+strings.Repeat("x", 201), nil), 422, "validation_failed")
}

// TestFollowGoesOnAfterABreak: a stream that broke off is taken up where it ended, no line lost or doubled, and the
// end of the cluster ends it.
func TestFollowGoesOnAfterABreak(t *testing.T) {
	t.Parallel()
	w := open(t)
	renter := w.user("ada")
	cl := w.rented(renter)
	if _, err := w.db.Pool.Exec(t.Context(), `UPDATE node SET state = 'ready'`); err != nil {
		// it may have printed something
		t.Fatal(err)
	}
	lines := []string{"one", "two", "three", "four"}
	times := []int64{10, 20, 20, 30}
	var mu sync.Mutex
	calls := 0
	released := make(chan struct{})
	w.host.set(func(d agentapi.Dial, out io.Writer) {
		mu.Lock()
		calls++
		call := calls
		mu.Unlock()
		if !d.Follow {
			t.Error("not followed")
		}
		upTo := []int{2, 3, 4, 4}[min(call, 4)-1] // the first streams break off
		for i := range upTo {
			frame(out, times[i], "%s", lines[i])
		}
		if call == 3 {
			close(released)
		}
	})
	srv := httptest.NewServer(w.api)
	t.Cleanup(srv.Close)
	req, err := http.NewRequestWithContext(t.Context(), "GET", srv.URL+"/api/v1/clusters/"+cl+"/logs?node=0&follow=true",
		nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+renter)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	go func() {
		<-released
		w.call(renter, "DELETE", "/api/v1/clusters/"+cl, nil)
	}()
	got, err := io.ReadAll(resp.Body)
	if err != nil || string(got) != "one\ntwo\nthree\nfour\n" {
		t.Errorf("got %q, %v", got, err)
	}
}
