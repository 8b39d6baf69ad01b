// Package stripetest is a Stripe of our own: a stateful HTTP server that behaves like the real one in what Muster uses.
// The sandbox runs on it through the very client that speaks to Stripe, over loopback HTTP; tests make it misbehave.
//
// Like Stripe it remembers each idempotency key with its parameters and answer, refuses another request under a known
// key, declines cards, and sends signed events at least once and in no particular order. Unlike Stripe it refuses a
// POST without an idempotency key, because ours must never send one. No real money is involved.
//
// Test payment methods: pm_card_visa pays; pm_card_visa_chargeDeclined, pm_card_visa_chargeDeclinedInsufficientFunds,
// pm_card_chargeDeclinedExpiredCard and pm_card_authenticationRequired are declined; pm_slow stays in processing until
// Finish. Whatever the method, an amount of 4000.02 is declined, 4000.95 lacks funds, and 4000.69 meets an expired card
// (after Stripe's test card numbers).
package stripetest

import (
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"
)

// APIVersion is the version of Stripe's API that is imitated.
const APIVersion = "2023-10-16"

// Config of a fake Stripe.
type Config struct {
	WebhookSecret string           // signs events
	Now           func() time.Time // nil: time.Now
	// File keeps the state across restarts; empty: in memory only. Written after every change.
	File string
	// PublicURL is where browsers reach this server, for checkout pages.
	PublicURL string
}

// Server is the fake. It is an http.Handler for Stripe's API under /v1 and for its checkout pages under /pay.
type Server struct {
	cfg Config
	mux *http.ServeMux

	mu     sync.Mutex
	s      state
	faults []Fault
	news   chan struct{} // an event waits; holds one
}

// state is all the server remembers.
type state struct {
	Customers map[string]*customer `json:"customers"`
	Payments  map[string]*payment  `json:"payments"`
	Sessions  map[string]*session  `json:"sessions"`
	Order     []string             `json:"order"` // payment ids, oldest first
	Keys      map[string]answer    `json:"keys"`
	Events    []*event             `json:"events"` // not delivered yet
	Charges   int                  `json:"charges"`
}

// New reads the state file if there is one.
func New(cfg Config) (*Server, error) {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	s := &Server{cfg: cfg, mux: http.NewServeMux(), news: make(chan struct{}, 1)}
	s.s = state{Customers: map[string]*customer{}, Payments: map[string]*payment{}, Sessions: map[string]*session{}, Keys: map[string]answer{}}
	if err := s.load(); err != nil {
		return nil, err
	}
	s.mux.HandleFunc("POST /v1/customers", s.post(s.createCustomer))
	s.mux.HandleFunc("GET /v1/customers/{id}", s.get(s.customer))
	s.mux.HandleFunc("POST /v1/payment_intents", s.post(s.createPayment))
	s.mux.HandleFunc("GET /v1/payment_intents", s.get(s.listPayments))
	s.mux.HandleFunc("GET /v1/payment_intents/{id}", s.get(s.payment))
	s.mux.HandleFunc("POST /v1/checkout/sessions", s.post(s.createSession))
	s.mux.HandleFunc("GET /v1/checkout/sessions/{id}", s.get(s.session))
	s.mux.HandleFunc("GET /pay/{id}", s.payPage)
	s.mux.HandleFunc("POST /pay/{id}", s.payClicked)
	return s, nil
}

func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if strings.HasPrefix(r.URL.Path, "/v1/") {
		key, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
		switch {
		case !ok || !strings.HasPrefix(key, "sk_") && !strings.HasPrefix(key, "rk_"):
			apiError{Status: 401, Type: "invalid_request_error", Message: "Invalid API Key provided"}.answer().write(w)
			return
		case r.Header.Get("Stripe-Version") != APIVersion:
			apiError{Status: 400, Type: "invalid_request_error", Message: "Wrong Stripe-Version"}.answer().write(w)
			return
		}
	}
	s.mux.ServeHTTP(w, r)
}

// answer is what a request was answered.
type answer struct {
	Status int             `json:"status"`
	Body   json.RawMessage `json:"body"`
	Params string          `json:"params"` // of the request, under its key
	At     int64           `json:"at"`     // unix seconds
}

func (a answer) write(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Request-Id", newID("req"))
	w.WriteHeader(a.Status)
	_, _ = w.Write(a.Body) // a client that has gone away hears nothing
}

func ok(v any) answer {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err) // our own types
	}
	return answer{Status: 200, Body: b}
}

// apiError is Stripe's error object.
type apiError struct {
	Status      int      `json:"-"`
	Type        string   `json:"type"`
	Code        string   `json:"code,omitempty"`
	DeclineCode string   `json:"decline_code,omitempty"`
	Message     string   `json:"message"`
	Param       string   `json:"param,omitempty"`
	Payment     *payment `json:"payment_intent,omitempty"`
}

func (e apiError) answer() answer {
	a := ok(map[string]apiError{"error": e})
	a.Status = e.Status
	return a
}

func invalid(param, format string, args ...any) answer {
	return apiError{Status: 400, Type: "invalid_request_error", Code: "parameter_invalid", Param: param, Message: fmt.Sprintf(format, args...)}.answer()
}

func missing(kind, id string) answer {
	return apiError{Status: 404, Type: "invalid_request_error", Code: "resource_missing", Message: fmt.Sprintf("No such %s: '%s'", kind, id)}.answer()
}

// get answers a reading request.
func (s *Server) get(f func(r *http.Request) answer) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		a := f(r)
		s.mu.Unlock()
		a.write(w)
	}
}

func newID(prefix string) string {
	var b [12]byte
	_, _ = rand.Read(b[:]) // never fails
	return prefix + "_" + hex.EncodeToString(b[:])
}
