package stripetest

import (
	"net/http"
	"net/url"
	"time"
)

// post answers a changing request once per idempotency key, and misbehaves where it was told to.
func (s *Server) post(f func(form url.Values) answer) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if err := r.ParseForm(); err != nil {
			invalid("", "the body cannot be read").write(w)
			return
		}
		key := r.Header.Get("Idempotency-Key")
		if key == "" {
			invalid("", "a POST without an Idempotency-Key").write(w)
			return
		}
		fault := s.nextFault()
		if fault.before(w, r) {
			return
		}
		a := s.once(r.URL.Path+" "+key, r.PostForm, f)
		fault.after(w, r, a)
	}
}

// keyLife is how long Stripe remembers a key.
const keyLife = 24 * time.Hour

func (s *Server) once(key string, form url.Values, f func(url.Values) answer) answer {
	params := form.Encode()
	s.mu.Lock()
	defer s.mu.Unlock()
	if a, ok := s.s.Keys[key]; ok && s.cfg.Now().Sub(time.Unix(a.At, 0)) < keyLife {
		if a.Params != params {
			return apiError{Status: 400, Type: "idempotency_error", Message: "Keys for idempotent requests can only be used with the same parameters they were first used with."}.answer()
		}
		return a
	}
	a := f(form)
	if a.Status != 400 && a.Status != 404 { // requests that fail validation are not remembered
		a.Params, a.At = params, s.cfg.Now().Unix()
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
