// Package sandbox is a Stripe of our own: a stateful HTTP server that behaves like the real one in what Muster uses.
// The sandbox runs on it through the same client that calls Stripe, over loopback HTTP; tests make it misbehave.
//
// Like Stripe it remembers each idempotency key with its parameters and answer for a day, refuses another request under
// a known key, declines cards, asks for 3-D Secure, keeps a balance whose every change is a balance transaction, takes
// its fee, and sends signed events at least once and in no particular order. Unlike Stripe it refuses a POST without an
// idempotency key, because ours must never send one. No real money is involved. What it answers is held to Stripe's
// published OpenAPI description by the package's tests.
//
// Servers that are given a database are one Stripe: what they remember is there, and each change is made under a lock
// that they share.
//
// One file per resource: its objects, its routes (a method …Routes, called by New), and what tests may do to it.
//
// Test payment methods are Stripe's; see cards. Whatever the method, an amount of 4000.02 is declined, 4000.95 lacks
// funds, and 4000.69 meets an expired card (after Stripe's test card numbers).
package sandbox

import (
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/musterhq/muster/internal/db"
)

// APIVersion is the version of Stripe's API that is imitated.
const APIVersion = "2023-10-16"

// Config of a fake Stripe.
type Config struct {
	WebhookSecret string           // signs events
	Now           func() time.Time // nil: time.Now
	// DB keeps the state, for all servers that share it; nil: it is in memory only. The tables are the migrations'.
	DB *db.DB
	// Earlier is the file in which earlier versions kept their state: taken over where there is none yet.
	Earlier string
	// PublicURL is where browsers reach this server's pages: checkout, saving a card, 3-D Secure.
	PublicURL string
}

// Server is the fake. It is an http.Handler for Stripe's API under /v1 and for the pages a payer sees under /pay and
// /3ds; Pages serves the latter alone.
type Server struct {
	cfg   Config
	mux   *http.ServeMux
	pages *http.ServeMux

	mu     guard
	s      state
	faults []Fault
	calls  int // changing requests

	settleAfter time.Duration // until the money of a charge is available
	needFunds   bool          // refunds of more than is available stay pending

	throttled bool // only room more of them are let through
	room      int
	news      chan struct{} // an event waits; holds one
}

// state is all the server remembers.
type state struct {
	Customers shelf[customer]      `json:"customers"`
	Methods   shelf[paymentMethod] `json:"payment_methods"`
	Setups    shelf[setupIntent]   `json:"setup_intents"`
	Payments  shelf[payment]       `json:"payments"`
	Charges   shelf[charge]        `json:"charges"`
	Refunds   shelf[refund]        `json:"refunds"`
	Disputes  shelf[dispute]       `json:"disputes"`
	Balance   shelf[balanceTx]     `json:"balance"`
	Warnings  shelf[fraudWarning]  `json:"early_fraud_warnings"`
	Sessions  shelf[session]       `json:"sessions"`
	Accounts  shelf[account]       `json:"accounts"`
	Links     shelf[accountLink]   `json:"account_links"`
	Transfers shelf[transfer]      `json:"transfers"`
	Meters    shelf[meter]         `json:"meters"`
	Usage     shelf[meterEvent]    `json:"meter_events"`
	Products  shelf[product]       `json:"products"`
	Prices    shelf[price]         `json:"prices"`
	Endpoints shelf[endpoint]      `json:"webhook_endpoints"`

	Subscriptions shelf[subscription] `json:"subscriptions"`
	Invoices      shelf[invoice]      `json:"invoices"`
	Items         shelf[invoiceItem]  `json:"invoice_items"`

	Keys   shelf[answer]  `json:"idempotency_keys"`
	Events shelf[waiting] `json:"waiting_events"`
}

// New makes a server with the state that there is. It starts nothing.
func New(cfg Config) (*Server, error) {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	s := &Server{cfg: cfg, mux: http.NewServeMux(), pages: http.NewServeMux(), news: make(chan struct{}, 1)}
	s.mu.shelves = s.s.shelves()
	if cfg.DB != nil {
		s.mu.shared = &shared{db: cfg.DB, shelves: s.mu.shelves, learnt: s.ring}
		if err := s.open(); err != nil {
			return nil, err
		}
	}
	s.customerRoutes()
	s.methodRoutes()
	s.setupRoutes()
	s.paymentRoutes()
	s.chargeRoutes()
	s.refundRoutes()
	s.disputeRoutes()
	s.warningRoutes()
	s.balanceRoutes()
	s.checkoutRoutes()
	s.meterRoutes()
	s.usageRoutes()
	s.subscriptionRoutes()
	s.invoiceRoutes()
	s.priceRoutes()
	s.endpointRoutes()
	s.accountRoutes()
	s.transferRoutes()
	s.mux.Handle("/pay/", s.pages)
	s.mux.Handle("/3ds/", s.pages)
	return s, nil
}

// open reads the state, an earlier version's if that is all there is.
func (s *Server) open() (err error) {
	unreached := try(func() {
		if s.cfg.Earlier != "" {
			err = s.readEarlier(s.cfg.Earlier)
			return
		}
		s.read(func() answer { return answer{} })
	})
	return errors.Join(err, unreached)
}

// Pages serves what a payer's browser sees, and not the API: it may stand in the open.
func (s *Server) Pages() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer reached(w)
		s.pages.ServeHTTP(w, r)
	})
}

func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	defer reached(w)
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

// onGet answers a reading request.
func (s *Server) onGet(path string, f func(r *http.Request) answer) {
	s.mux.HandleFunc("GET "+path, func(w http.ResponseWriter, r *http.Request) {
		s.read(func() answer { return f(r) }).write(w)
	})
}

func (s *Server) read(f func() answer) answer {
	s.mu.Lock()
	defer s.mu.Unlock()
	return f()
}

// onPost answers a changing request once per idempotency key, and misbehaves where a test requested it.
func (s *Server) onPost(path string, f func(r *http.Request, form url.Values) answer) {
	s.mux.HandleFunc("POST "+path, func(w http.ResponseWriter, r *http.Request) {
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
		fault.after(w, r, s.once(key, r, f))
	})
}

// now is the present second, as Stripe's objects have it.
func (s *Server) now() int64 { return s.cfg.Now().Unix() }

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
	_, _ = w.Write(a.Body) // a client that has gone away gets no answer
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
	return apiError{
		Status:  400,
		Type:    "invalid_request_error",
		Code:    "parameter_invalid_integer",
		Param:   param,
		Message: fmt.Sprintf(format, args...),
	}.answer()
}

func missing(kind, id string) answer {
	return apiError{
		Status:  404,
		Type:    "invalid_request_error",
		Code:    "resource_missing",
		Message: fmt.Sprintf("No such %s: '%s'", kind, id),
	}.answer()
}

func newID(prefix string) string {
	var b [12]byte
	_, _ = rand.Read(b[:]) // never fails
	return prefix + "_" + hex.EncodeToString(b[:])
}
