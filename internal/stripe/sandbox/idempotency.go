package sandbox

import (
	"net/http"
	"net/url"
	"time"
)

// keyLife is how long Stripe remembers a key.
const keyLife = 24 * time.Hour

// once answers a request under a key as it was answered the first time. A key belongs to its path and parameters.
func (s *Server) once(key string, r *http.Request, f func(*http.Request, url.Values) answer) answer {
	params := r.URL.Path + "?" + r.PostForm.Encode()
	s.mu.Lock()
	defer s.mu.Unlock()
	if a := s.s.Keys.get(key); a != nil && !s.expired(a) {
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
	for len(s.s.Keys.Order) > 0 && s.expired(s.s.Keys.Objects[s.s.Keys.Order[0]]) {
		s.s.Keys.drop(s.s.Keys.Order[0])
	}
	s.bill()
	s.settle()
	a := f(r, r.PostForm)
	if a.Status != 400 && a.Status != 404 { // requests that fail validation are not remembered
		a.Params, a.At = params, s.now()
		s.s.Keys.put(key, &a)
	}
	s.save()
	return a
}

func (s *Server) expired(a *answer) bool { return s.cfg.Now().Sub(time.Unix(a.At, 0)) >= keyLife }

// ForgetKeys is what a day does to idempotency keys.
func (s *Server) ForgetKeys() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.s.Keys.Order) > 0 {
		s.s.Keys.drop(s.s.Keys.Order[0])
	}
	s.save()
}
