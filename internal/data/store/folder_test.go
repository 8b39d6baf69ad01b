package store

import (
	"bytes"
	"context"
	"crypto/sha256"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
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

// What an upload has left whose server was killed is removed at the next start and by Tidy. An upload that goes on, and
// what is not an upload's, stay.
func TestLeftUploadsAreRemoved(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	open := func() *Folder {
		t.Helper()
		f, err := OpenFolder(dir, "http://store", bytes.Repeat([]byte{1}, 32))
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	f := open()
	old := time.Now().Add(-leftAfter - time.Minute)
	file := func(name string, at time.Time) {
		t.Helper()
		path := filepath.Join(dir, "tmp", name)
		if err := os.WriteFile(path, []byte("half"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(path, at, at); err != nil {
			t.Fatal(err)
		}
	}
	check := func(when string, want ...string) {
		t.Helper()
		entries, err := os.ReadDir(filepath.Join(dir, "tmp"))
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, e := range entries {
			got = append(got, e.Name())
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s there are %q, not %q", when, got, want)
		}
	}
	file("put-1", old)
	file("put-2", time.Now())
	file("other", old)
	if err := f.Tidy(); err != nil {
		t.Fatal(err)
	}
	check("after Tidy", "other", "put-2")
	file("put-3", old)
	open()
	check("after a start", "other", "put-2")
	for o, err := range f.List(t.Context(), "", "") {
		t.Errorf("listed: %+v %v", o, err)
	}
}

// A page of a list is the same whatever folders it leaves out.
func TestListsOfManyDomains(t *testing.T) {
	t.Parallel()
	f := serve(t)
	var keys []string
	for _, domain := range []string{"a", "ab", "a0", "b", "b_c"} {
		for _, n := range []string{"1", "10", "2"} {
			for _, room := range []string{"d", "e"} {
				keys = append(keys, room+"/"+domain+"/"+n)
			}
		}
	}
	for _, k := range keys {
		if err := f.Put(t.Context(), k, []byte(k)); err != nil {
			t.Fatal(err)
		}
	}
	slices.Sort(keys)
	for _, prefix := range []string{"", "d/", "d/a", "d/a/", "d/b/1", "e/"} {
		for _, after := range append([]string{"", "d/a/", "d/aa/5", "d/zz/1"}, keys...) {
			var want, got []string
			for _, k := range keys {
				if strings.HasPrefix(k, prefix) && k > after {
					want = append(want, k)
				}
			}
			for o, err := range f.List(t.Context(), prefix, after) {
				if err != nil {
					t.Fatal(err)
				}
				got = append(got, o.Key)
			}
			if !slices.Equal(got, want) {
				t.Errorf("prefix %q after %q: %q, not %q", prefix, after, got, want)
			}
		}
	}
}
