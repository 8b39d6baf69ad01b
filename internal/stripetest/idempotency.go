package stripetest

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
	if a, ok := s.s.Keys[key]; ok && s.cfg.Now().Sub(time.Unix(a.At, 0)) < keyLife {
		if a.Params != params {
			return apiError{Status: 400, Type: "idempotency_error", Message: "Keys for idempotent requests can only be used with the same endpoint and parameters they were first used with."}.answer()
		}
		return a
	}
	a := f(r, r.PostForm)
	if a.Status != 400 && a.Status != 404 { // requests that fail validation are not remembered
		a.Params, a.At = params, s.now()
		s.s.Keys[key] = a
	}
	s.save()
	return a
}

// ForgetKeys is what a day does to idempotency keys.
func (s *Server) ForgetKeys() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.s.Keys)
	s.save()
}
