package server

import (
	"compress/gzip"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// get returns the response to a request with one header beside Accept-Encoding: gzip; its body is not decompressed.
func get(t *testing.T, url, header, value string) *http.Response {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Accept-Encoding", "gzip")
	r.Header.Set(header, value)
	c := &http.Client{Transport: &http.Transport{DisableCompression: true}, Timeout: 10 * time.Second}
	res, err := c.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { res.Body.Close() })
	return res
}

func TestResponsesAreCompressed(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("<p>sixteen H100</p>", 1000)
	srv := httptest.NewServer(compress(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", r.URL.Query().Get("type"))
		_, _ = io.WriteString(w, long[:min(len(long), len(long)*int(r.URL.Path[1]-'0'))])
	})))
	t.Cleanup(srv.Close)
	for _, c := range []struct {
		name, url, accept string
		want              string
	}{
		{"a page", "/1?type=text/html;+charset=utf-8", "gzip", "gzip"},
		{"JSON", "/1?type=application/json", "gzip", "gzip"},
		{"a problem", "/1?type=application/problem%2Bjson", "br, gzip;q=0.5", "gzip"},
		{"a client without gzip", "/1?type=text/html", "identity", ""},
		{"a client that refuses gzip", "/1?type=text/html", "gzip;q=0", ""},
		{"a font", "/1?type=font/woff2", "gzip", ""},
		{"nothing", "/0?type=text/html", "gzip", ""},
	} {
		res := get(t, srv.URL+c.url, "Accept-Encoding", c.accept)
		if got := res.Header.Get("Content-Encoding"); got != c.want {
			t.Errorf("%s: Content-Encoding is %q, want %q", c.name, got, c.want)
		}
		if c.want != "gzip" {
			continue
		}
		if vary := res.Header.Values("Vary"); !strings.Contains(strings.Join(vary, ","), "Accept-Encoding") {
			t.Errorf("%s: Vary is %q", c.name, vary)
		}
		z, err := gzip.NewReader(res.Body)
		if err != nil {
			t.Fatal(err)
		}
		if b, err := io.ReadAll(z); err != nil || string(b) != long {
			t.Errorf("%s: %d bytes of %d, %v", c.name, len(b), len(long), err)
		}
	}
}

// A follower of a log and a live page have to learn that they are connected before there is anything to read.
func TestStreamsStartBeforeTheirFirstByte(t *testing.T) {
	t.Parallel()
	quiet := make(chan struct{})
	srv := httptest.NewServer(compress(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		_ = http.NewResponseController(w).Flush()
		select {
		case <-quiet:
		case <-r.Context().Done():
		}
	})))
	t.Cleanup(srv.Close)
	t.Cleanup(func() { close(quiet) })
	get(t, srv.URL+"/clusters/cl_1/logs", "Accept", "*/*")
	get(t, srv.URL+"/clusters/cl_1/live", "Accept", "text/event-stream")
}
