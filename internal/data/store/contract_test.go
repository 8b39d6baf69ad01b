package store

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/musterhq/muster/internal/id"
)

func do(t *testing.T, r Request, body []byte, change func(*http.Request)) (int, []byte) {
	t.Helper()
	q, err := http.NewRequestWithContext(t.Context(), r.Method, r.URL, bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for k, v := range r.Header {
		q.Header.Set(k, v)
	}
	if change != nil {
		change(q)
	}
	answer, err := http.DefaultClient.Do(q)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	b, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer.StatusCode, b
}

// checkStore is what every store must do.
func checkStore(t *testing.T, s Store) {
	t.Helper()
	if err := s.Probe(t.Context()); err != nil {
		t.Fatal(err)
	}
	key := Key(id.New[id.DataDomain](), 7)
	body := bytes.Repeat([]byte("pack"), 1000)
	put, err := s.SignPut(t.Context(), key, sha256.Sum256(body), int64(len(body)), time.Now().Add(time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	checkRefusals(t, s, key, put, body)
	if status, _ := do(t, put, body, nil); status != http.StatusOK {
		t.Fatalf("PUT: %d", status)
	}
	if status, _ := do(t, put, body, nil); status != http.StatusPreconditionFailed {
		t.Errorf("the same PUT again: %d", status)
	}
	if o, err := s.Head(t.Context(), key); err != nil || o.Bytes != int64(len(body)) ||
		o.Sum != sha256.Sum256(body) && o.Sum != [32]byte{} {
		t.Errorf("%+v %v", o, err)
	}
	checkReads(t, s, key, body)
	checkDeletion(t, s, key)
	checkLists(t, s)
}

// checkRefusals sends what a signed PUT must not store.
func checkRefusals(t *testing.T, s Store, key string, put Request, body []byte) {
	t.Helper()
	if _, err := s.Head(t.Context(), key); !errors.Is(err, ErrNotFound) {
		t.Fatalf("before the PUT: %v", err)
	}
	other := bytes.Clone(body)
	other[0]++
	if status, _ := do(t, put, other, nil); status != http.StatusBadRequest {
		t.Errorf("another body: %d", status)
	}
	if status, _ := do(t, put, body[:100], nil); status/100 != 4 {
		t.Errorf("a shorter body: %d", status)
	}
	if status, _ := do(t, put, append(bytes.Clone(body), 1), nil); status/100 != 4 {
		t.Errorf("a longer body: %d", status)
	}
	for h := range put.Header {
		if h == "Content-Length" { // the client sets it
			continue
		}
		less := put
		less.Header = maps.Clone(put.Header)
		delete(less.Header, h)
		if status, _ := do(t, less, body, nil); status/100 != 4 {
			t.Errorf("without the header %s: %d", h, status)
		}
	}
	get, err := s.SignGet(t.Context(), key, time.Now().Add(time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	if status, _ := do(t, Request{Method: http.MethodPut, URL: get.URL}, body, nil); status != http.StatusForbidden {
		t.Errorf("a PUT by the URL of a GET: %d", status)
	}
	late, err := s.SignPut(t.Context(), key, sha256.Sum256(body), int64(len(body)), time.Now().Add(time.Second))
	if err != nil {
		t.Fatal(err)
	}
	time.Sleep(2100 * time.Millisecond)
	if status, _ := do(t, late, body, nil); status != http.StatusForbidden {
		t.Errorf("too late: %d", status)
	}
	if _, err := s.Head(t.Context(), key); !errors.Is(err, ErrNotFound) {
		t.Fatalf("a refused PUT stored something: %v", err)
	}
}

func checkReads(t *testing.T, s Store, key string, body []byte) {
	t.Helper()
	get, err := s.SignGet(t.Context(), key, time.Now().Add(time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	if status, b := do(t, get, nil, nil); status != http.StatusOK || !bytes.Equal(b, body) {
		t.Errorf("GET: %d, %d bytes", status, len(b))
	}
	if status, b := do(t, get, nil, func(q *http.Request) { q.Header.Set("Range", "bytes=4-7") }); status !=
		http.StatusPartialContent || string(b) != "pack" {
		t.Errorf("a range: %d %q", status, b)
	}
	if status, _ := do(t, Request{Method: http.MethodDelete, URL: get.URL}, nil, nil); status/100 != 4 {
		t.Errorf("a DELETE by the URL of a GET: %d", status)
	}
	part, err := s.Read(t.Context(), key, 4, 4)
	if err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(part)
	_ = part.Close()
	if err != nil || string(b) != "pack" {
		t.Errorf("read %q: %v", b, err)
	}
}

func checkDeletion(t *testing.T, s Store, key string) {
	t.Helper()
	if err := s.Delete(t.Context(), key); err != nil {
		t.Fatal(err)
	}
	if err := s.Delete(t.Context(), key); err != nil {
		t.Errorf("deleted again: %v", err)
	}
	if _, err := s.Read(t.Context(), key, 0, 4); !errors.Is(err, ErrNotFound) {
		t.Errorf("read what is gone: %v", err)
	}
}

func checkLists(t *testing.T, s Store) {
	t.Helper()
	domain := id.New[id.DataDomain]()
	prefix := Packs + domain.String() + "/"
	var keys []string
	for n := range int64(5) {
		key := Key(domain, n+1)
		if err := s.Put(t.Context(), key, []byte(fmt.Sprint("pack ", n))); err != nil {
			t.Fatal(err)
		}
		keys = append(keys, key)
	}
	list := func(after string) (got []string) {
		for o, err := range s.List(t.Context(), prefix, after) {
			if err != nil {
				t.Fatal(err)
			}
			if o.Bytes != 6 || time.Since(o.At).Abs() > time.Minute {
				t.Errorf("listed: %+v", o)
			}
			got = append(got, o.Key)
		}
		return got
	}
	if got := list(""); !slices.Equal(got, keys) {
		t.Errorf("listed: %q", got)
	}
	if got := list(keys[1]); !slices.Equal(got, keys[2:]) {
		t.Errorf("listed after the second: %q", got)
	}
	if err := s.Delete(t.Context(), append(keys[1:], Key(domain, 99))...); err != nil {
		t.Fatal(err)
	}
	if got := list(""); !slices.Equal(got, keys[:1]) {
		t.Errorf("after a deletion of several: %q", got)
	}
	if err := s.Delete(t.Context(), keys[0]); err != nil {
		t.Fatal(err)
	}
}
