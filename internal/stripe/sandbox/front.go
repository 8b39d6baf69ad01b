package sandbox

import (
	"io"
	"net/http"
	"net/url"
)

// front answers HTTP requests: the API's with what a resource answers, under the lock and once per idempotency key, and
// those of payers' browsers, which see pages.
type front struct {
	mux     *http.ServeMux
	pages   *http.ServeMux // what a payer's browser sees; they may stand in the open
	store   *store
	faults  *Faults
	keys    *Keys
	billing *Billing
}

// onGet answers a reading request.
func (f *front) onGet(path string, do func(r *http.Request) answer) {
	f.mux.HandleFunc("GET "+path, func(w http.ResponseWriter, r *http.Request) {
		f.store.read(func() answer { return do(r) }).write(w)
	})
}

// onPost answers a changing request once per idempotency key, and misbehaves where a test requested it.
func (f *front) onPost(path string, do func(r *http.Request, form url.Values) answer) {
	f.mux.HandleFunc("POST "+path, func(w http.ResponseWriter, r *http.Request) {
		if err := r.ParseForm(); err != nil {
			invalid("", "the body cannot be read").write(w)
			return
		}
		key := r.Header.Get("Idempotency-Key")
		if key == "" {
			invalid("", "a POST without an Idempotency-Key").write(w)
			return
		}
		fault := f.faults.next()
		if fault.before(w, r) {
			return
		}
		fault.after(w, r, f.keys.once(key, r, do))
	})
}

// onDelete answers a deletion. Stripe takes no notice of its idempotency key: a second one finds nothing to delete.
func (f *front) onDelete(path string, do func(r *http.Request, form url.Values) answer) {
	f.mux.HandleFunc("DELETE "+path, func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(io.LimitReader(r.Body, 1<<20))
		if err != nil {
			invalid("", "the body cannot be read").write(w)
			return
		}
		form, err := url.ParseQuery(string(body))
		if err != nil {
			invalid("", "the body cannot be read").write(w)
			return
		}
		fault := f.faults.next()
		if fault.before(w, r) {
			return
		}
		fault.after(w, r, f.change(func() answer { return do(r, form) }))
	})
}

// change makes a change and keeps it, after what the clock has brought.
func (f *front) change(do func() answer) answer {
	f.store.mu.Lock()
	defer f.store.mu.Unlock()
	f.billing.run()
	a := do()
	f.store.save()
	return a
}
