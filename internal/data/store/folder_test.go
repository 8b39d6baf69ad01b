package store

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/musterhq/muster/internal/id"
)

func serve(t *testing.T) *Folder {
	t.Helper()
	mux := http.NewServeMux()
	srv := httptest.NewServer(mux)
	t.Cleanup(srv.Close)
	f, err := OpenFolder(t.TempDir(), srv.URL, bytes.Repeat([]byte{1}, 32))
	if err != nil {
		t.Fatal(err)
	}
	mux.Handle(FolderPath, f.Handler())
	return f
}

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
	ctx := t.Context()
	if err := s.Probe(ctx); err != nil {
		t.Fatal(err)
	}
	key := Key(id.New[id.DataDomain](), 7)
	body := bytes.Repeat([]byte("pack"), 1000)
	until := time.Now().Add(time.Minute)
	put, err := s.SignPut(ctx, key, sha256.Sum256(body), int64(len(body)), until)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Head(ctx, key); !errors.Is(err, ErrNotFound) {
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
	get, err := s.SignGet(ctx, key, until)
	if err != nil {
		t.Fatal(err)
	}
	if status, _ := do(t, Request{Method: http.MethodPut, URL: get.URL}, body, nil); status != http.StatusForbidden {
		t.Errorf("a PUT by the URL of a GET: %d", status)
	}
	if _, err := s.Head(ctx, key); !errors.Is(err, ErrNotFound) {
		t.Fatalf("a refused PUT stored something: %v", err)
	}
	if status, _ := do(t, put, body, nil); status != http.StatusOK {
		t.Fatalf("PUT: %d", status)
	}
	if status, _ := do(t, put, body, nil); status != http.StatusPreconditionFailed {
		t.Errorf("the same PUT again: %d", status)
	}
	if o, err := s.Head(ctx, key); err != nil || o.Bytes != int64(len(body)) || o.Sum != sha256.Sum256(body) {
		t.Errorf("%+v %v", o, err)
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
	part, err := s.Read(ctx, key, 4, 4)
	if err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(part)
	_ = part.Close()
	if err != nil || string(b) != "pack" {
		t.Errorf("read %q: %v", b, err)
	}
	if err := s.Delete(ctx, key); err != nil {
		t.Fatal(err)
	}
	if err := s.Delete(ctx, key); err != nil {
		t.Errorf("deleted again: %v", err)
	}
	if _, err := s.Read(ctx, key, 0, 4); !errors.Is(err, ErrNotFound) {
		t.Errorf("read what is gone: %v", err)
	}
}

func TestFolder(t *testing.T) {
	t.Parallel()
	checkStore(t, serve(t))
}

// What is not signed as it is sent is refused, and no key leaves the folder.
func TestFolderRefuses(t *testing.T) {
	t.Parallel()
	f := serve(t)
	ctx := context.Background()
	body := []byte("x")
	put, err := f.SignPut(ctx, "d/a/1", sha256.Sum256(body), 1, time.Now().Add(time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	for what, url := range map[string]string{
		"another key":       strings.Replace(put.URL, "d/a/1", "d/a/2", 1),
		"a longer time":     strings.Replace(put.URL, "until=", "until=9", 1),
		"another length":    strings.Replace(put.URL, "bytes=1", "bytes=2", 1),
		"no signature":      strings.Split(put.URL, "sig=")[0],
		"out of the folder": strings.Replace(put.URL, "d/a/1", "d/a/..%2f..%2f..%2fx", 1),
	} {
		if status, _ := do(t, Request{Method: http.MethodPut, URL: url}, body, nil); status == http.StatusOK {
			t.Errorf("%s: %d", what, status)
		}
	}
	late, err := f.SignPut(ctx, "d/a/1", sha256.Sum256(body), 1, time.Now().Add(-time.Second))
	if err != nil {
		t.Fatal(err)
	}
	if status, _ := do(t, late, body, nil); status != http.StatusForbidden {
		t.Errorf("too late: %d", status)
	}
	for _, key := range []string{"", "x", "../x", "d/../x", "d/a/../../x", "/d/a/1", "d/a/1/b", "d/A/1"} {
		if _, err := f.SignPut(ctx, key, sha256.Sum256(body), 1, time.Now()); err == nil {
			t.Errorf("the key %q is signed", key)
		}
		if err := f.Put(ctx, key, body); err == nil {
			t.Errorf("the key %q is stored", key)
		}
	}
	if status, _ := do(t, put, body, nil); status != http.StatusOK {
		t.Errorf("the signed request itself: %d", status)
	}
}
