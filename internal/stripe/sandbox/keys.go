package sandbox

import (
	"net/http"
	"net/url"
	"time"
)

// Keys are the idempotency keys and what the requests under them were answered.
type Keys struct {
	store   *store
	billing *Billing
	balance *Balance
}

// keyLife is how long Stripe remembers a key.
const keyLife = 24 * time.Hour

// once answers a request under a key as it was answered the first time. A key belongs to its path and parameters.
func (ks *Keys) once(key string, r *http.Request, f func(*http.Request, url.Values) answer) answer {
	params := r.URL.Path + "?" + r.PostForm.Encode()
	ks.store.mu.Lock()
	defer ks.store.mu.Unlock()
	if a := ks.store.Keys.get(key); a != nil && !ks.expired(a) {
		if a.Params != params {
			return apiError{
				Status: 400,
				Type:   "idempotency_error",
				Message: "Keys for idempotent requests can only be used with the same endpoint and parameters they were first " +
					"used with.",
			}.answer()
		}
		return *a
	}
	for len(ks.store.Keys.Order) > 0 && ks.expired(ks.store.Keys.Objects[ks.store.Keys.Order[0]]) {
		ks.store.Keys.drop(ks.store.Keys.Order[0])
	}
	ks.billing.run()
	ks.balance.settle()
	a := f(r, r.PostForm)
	if a.Status != 400 && a.Status != 404 { // requests that fail validation are not remembered
		a.Params, a.At = params, ks.store.now()
		ks.store.Keys.put(key, &a)
	}
	ks.store.save()
	return a
}

func (ks *Keys) expired(a *answer) bool { return ks.store.clock().Sub(time.Unix(a.At, 0)) >= keyLife }

// Forget is what a day does to idempotency keys.
func (ks *Keys) Forget() {
	ks.store.mu.Lock()
	defer ks.store.mu.Unlock()
	for len(ks.store.Keys.Order) > 0 {
		ks.store.Keys.drop(ks.store.Keys.Order[0])
	}
	ks.store.save()
}
