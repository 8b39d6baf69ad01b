package packio

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// Each thing that a store does wrong has its own words, which do not contain the URL; none is the end of a file.
func TestWhatAStoreDoesWrongIsNamed(t *testing.T) {
	t.Parallel()
	hang := make(chan struct{})
	defer close(hang)
	answers := func(status int, code string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(status)
			_, _ = io.WriteString(w, "<Error><Code>"+code+"</Code></Error>")
		}
	}
	for _, c := range []struct {
		name              string
		h                 http.HandlerFunc
		body              []byte
		want              string
		missing, unsigned bool
	}{
		{"full", answers(507, "X"), []byte("x"), "the store is full: it answers a write with status 507 X", false, false},
		{"quota", answers(403, "QuotaExceeded"), []byte("x"), "the store is full", false, false},
		{"busy", answers(503, "SlowDown"), nil, "the store is overloaded: it answers a read with status 503 SlowDown", false,
			false},
		{"gone", answers(404, "NoSuchKey"), nil, "the store does not have the pack", true, false},
		{"no bucket", answers(404, "NoSuchBucket"), nil, "the store fails: it answers a read with status 404 NoSuchBucket",
			false, false},
		{"refused", answers(403, "AccessDenied"), nil, "the store refuses a signed request", false, true},
		{"no range", answers(200, ""), nil, "does not answer a range", false, false},
		{"text", answers(500, "<b>\x1b[1m"), nil, "it answers a read with status 500", false, false},
		{"closed", func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, nil,
			"the store does not answer", false, false},
		{"cut off", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "4")
			w.WriteHeader(206)
			_, _ = io.WriteString(w, "ab")
		}, nil, "the store cuts off what it sends", false, false},
		{"short", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(206); _, _ = io.WriteString(w, "ab") }, nil,
			"the store cuts off what it sends", false, false},
		{"hangs", func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(206)
			_ = http.NewResponseController(w).Flush()
			<-hang
		}, nil, "a read made no progress for 200ms", false, false},
		{"never answers", func(http.ResponseWriter, *http.Request) { <-hang }, []byte("x"), "a write made no progress", false,
			false},
	} {
		s := httptest.NewServer(c.h)
		t.Cleanup(s.Close)
		a, err := Send(t.Context(), s.Client(), Request{Method: http.MethodGet, URL: s.URL + "/?secret", Body: c.body,
			Length: 4, Stall: 200 * time.Millisecond})
		if err == nil {
			err = a.Full(make([]byte, 4))
			a.Close()
		}
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "secret") ||
			Missing(err) != c.missing || Unsigned(err) != c.unsigned || errors.Is(err, io.EOF) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}
