package s3test

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/musterhq/muster/internal/data/store"
)

// Faults stands before a store, and fails as its rules say. Without rules it passes everything on.
type Faults struct {
	Config store.S3Config // of the store, through the faults

	mu     sync.Mutex
	rules  []*rule
	healed chan struct{} // closed by Heal
}

// A Fault answers a request instead of the store, or with its help.
type Fault func(w http.ResponseWriter, r *http.Request, store http.Handler)

type rule struct {
	when  func(*http.Request) bool
	do    Fault
	times int // that are left; -1: until Heal
	hits  int
}

// Behind returns faults before a store, until the end of the test.
func Behind(t testing.TB, to store.S3Config) *Faults {
	t.Helper()
	u, err := url.Parse(to.Endpoint)
	if err != nil {
		t.Fatal(err)
	}
	pass := &httputil.ReverseProxy{
		Rewrite:  func(p *httputil.ProxyRequest) { p.Out.URL.Scheme, p.Out.URL.Host = u.Scheme, u.Host }, // Host is signed
		ErrorLog: nil, Transport: &http.Transport{MaxIdleConnsPerHost: 32, DisableCompression: true},
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, _ error) { panic(http.ErrAbortHandler) },
	}
	f := &Faults{Config: to, healed: make(chan struct{})}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if do := f.rule(r); do != nil {
			do(w, r, pass)
			return
		}
		pass.ServeHTTP(w, r)
	}))
	t.Cleanup(func() {
		f.Heal()
		s.CloseClientConnections()
		s.Close()
	})
	f.Config.Endpoint = s.URL
	return f
}

func (f *Faults) rule(r *http.Request) Fault {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, x := range f.rules {
		if x.times != 0 && x.when(r) {
			x.times--
			x.hits++
			return x.do
		}
	}
	return nil
}

// When makes requests fail until Heal. It returns a function that counts them.
func (f *Faults) When(when func(*http.Request) bool, do Fault) (hits func() int) {
	return f.Times(-1, when, do)
}

// Times makes the next requests fail.
func (f *Faults) Times(n int, when func(*http.Request) bool, do Fault) (hits func() int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	x := &rule{when: when, do: do, times: n}
	f.rules = append(f.rules, x)
	return func() int {
		f.mu.Lock()
		defer f.mu.Unlock()
		return x.hits
	}
}

// Heal removes all rules, and ends requests that hang.
func (f *Faults) Heal() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.rules = nil
	close(f.healed)
	f.healed = make(chan struct{})
}

// Any is every request.
func Any(*http.Request) bool { return true }

// Puts are the requests that store an object.
func Puts(r *http.Request) bool { return r.Method == http.MethodPut }

// Gets are the requests that read an object, not those for a list.
func Gets(r *http.Request) bool { return r.Method == http.MethodGet && !r.URL.Query().Has("list-type") }

// Heads are the requests that look for an object.
func Heads(r *http.Request) bool { return r.Method == http.MethodHead }

// Lists are the requests for a list.
func Lists(r *http.Request) bool { return r.Method == http.MethodGet && r.URL.Query().Has("list-type") }

// Answers fails with a status and the code of an S3 error.
func Answers(status int, code string) Fault {
	return func(w http.ResponseWriter, r *http.Request, _ http.Handler) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "application/xml")
		w.WriteHeader(status)
		if r.Method != http.MethodHead {
			_, _ = io.WriteString(w, "<?xml version=\"1.0\"?><Error><Code>"+code+"</Code><Message>of the test</Message></Error>")
		}
	}
}

// Hangs neither reads the request nor answers until Heal, or until the client goes away.
func (f *Faults) Hangs() Fault {
	f.mu.Lock()
	healed := f.healed
	f.mu.Unlock()
	return func(_ http.ResponseWriter, r *http.Request, _ http.Handler) {
		select {
		case <-healed:
		case <-r.Context().Done():
		}
		panic(http.ErrAbortHandler)
	}
}

// Slow answers after a while.
func Slow(wait time.Duration) Fault {
	return func(w http.ResponseWriter, r *http.Request, store http.Handler) {
		select {
		case <-time.After(wait):
			store.ServeHTTP(w, r)
		case <-r.Context().Done():
		}
	}
}

// Forgets says that it has stored an object, and has not.
func Forgets(w http.ResponseWriter, r *http.Request, _ http.Handler) {
	_, _ = io.Copy(io.Discard, r.Body)
	w.Header().Set("ETag", `"forgotten"`)
	w.WriteHeader(http.StatusOK)
}

// ListsNothing answers a list as an empty bucket does.
func ListsNothing(w http.ResponseWriter, _ *http.Request, _ http.Handler) {
	w.Header().Set("Content-Type", "application/xml")
	_, _ = io.WriteString(w, `<?xml version="1.0"?><ListBucketResult><Name>muster</Name><KeyCount>0</KeyCount>`+
		`<IsTruncated>false</IsTruncated></ListBucketResult>`)
}

// Changes makes the store send other bytes: change may return fewer or more.
func Changes(change func(body []byte) []byte) Fault {
	return func(w http.ResponseWriter, r *http.Request, store http.Handler) {
		answer := httptest.NewRecorder()
		store.ServeHTTP(answer, r)
		body := answer.Body.Bytes()
		if answer.Code/100 == 2 {
			body = change(body)
		}
		for k, v := range answer.Header() {
			if !strings.EqualFold(k, "Content-Length") {
				w.Header()[k] = v
			}
		}
		w.Header().Set("Content-Length", strconv.Itoa(len(body)))
		w.WriteHeader(answer.Code)
		_, _ = w.Write(body)
	}
}

// Flips changes one bit of what the store sends.
func Flips() Fault {
	return Changes(func(b []byte) []byte {
		if len(b) > 0 {
			b[len(b)/2] ^= 1
		}
		return b
	})
}

// Older reads an object as another one that was stored before it: its key is that of old, below the same bucket and
// prefix. A key that has no older one is read as it is.
func Older(t testing.TB, direct *store.S3, old map[string]string) Fault {
	t.Helper()
	bodies := map[string][]byte{}
	for key, of := range old {
		o, err := direct.Head(t.Context(), of)
		if err != nil {
			t.Fatal(err)
		}
		r, err := direct.Read(t.Context(), of, 0, o.Bytes)
		if err != nil {
			t.Fatal(err)
		}
		bodies[key], err = io.ReadAll(r)
		if err := errors.Join(err, r.Close()); err != nil {
			t.Fatal(err)
		}
	}
	return func(w http.ResponseWriter, r *http.Request, to http.Handler) {
		for key, body := range bodies {
			if strings.HasSuffix(r.URL.Path, "/"+key) {
				w.Header().Set("ETag", `"older"`)
				http.ServeContent(w, r, "", time.Now().Add(-time.Hour), bytes.NewReader(body))
				return
			}
		}
		to.ServeHTTP(w, r)
	}
}

// Shortens sends half of an object, as if that were all of it.
func Shortens() Fault { return Changes(func(b []byte) []byte { return b[:len(b)/2] }) }

// Cuts ends the connection in the middle of an answer.
func Cuts(w http.ResponseWriter, r *http.Request, store http.Handler) {
	answer := httptest.NewRecorder()
	store.ServeHTTP(answer, r)
	for k, v := range answer.Header() {
		w.Header()[k] = v
	}
	w.WriteHeader(answer.Code)
	_, _ = w.Write(answer.Body.Bytes()[:answer.Body.Len()/2])
	_ = http.NewResponseController(w).Flush()
	panic(http.ErrAbortHandler)
}

// Measures answers a HEAD with another length.
func Measures(bytes int) Fault {
	return func(w http.ResponseWriter, r *http.Request, store http.Handler) {
		answer := httptest.NewRecorder()
		store.ServeHTTP(answer, r)
		for k, v := range answer.Header() {
			w.Header()[k] = v
		}
		w.Header().Set("Content-Length", strconv.Itoa(bytes))
		w.WriteHeader(answer.Code)
	}
}
