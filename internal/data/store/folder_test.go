package store

import (
	"bytes"
	"context"
	"crypto/sha256"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
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
	mux.Handle(SignedPath, f.Handler())
	return f
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
