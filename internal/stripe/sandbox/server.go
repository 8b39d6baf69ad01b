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
// One file per resource: its objects, and a type with its routes (a method routes, called by New) and with what tests
// may do to it. Each of these types knows only those that New makes before it, and all share the store, which holds the
// objects.
//
// Test payment methods are Stripe's; see cards. Whatever the method, an amount of 4000.02 is declined, 4000.95 lacks
// funds, and 4000.69 meets an expired card (after Stripe's test card numbers).
package sandbox

import (
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
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
// /3ds; Pages serves the latter alone. Its fields are what tests may do to it, by resource.
type Server struct {
	Accounts  *Accounts
	Balance   *Balance
	Billing   *Billing
	Charges   *Charges
	Checkout  *Checkout
	Disputes  *Disputes
	Endpoints *Endpoints
	Faults    *Faults
	Invoices  *Invoices
	Keys      *Keys
	Meters    *Meters
	Payments  *Payments
	Refunds   *Refunds
	Transfers *Transfers
	Warnings  *Warnings
	Webhooks  *Webhooks

	front   *front
	store   *store
	methods *methods
}

// New makes a server with the state that there is. It starts nothing.
func New(cfg Config) (*Server, error) {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	st := &store{clock: cfg.Now}
	ev := &events{store: st, news: make(chan struct{}, 1)}
	st.mu.shelves = st.shelves()
	if cfg.DB != nil {
		st.mu.shared = &shared{db: cfg.DB, shelves: st.mu.shelves, learnt: ev.ring}
		if err := st.open(cfg.Earlier); err != nil {
			return nil, err
		}
	}
	ms := &methods{store: st, events: ev}
	cs := &customers{store: st, events: ev, methods: ms}
	ss := &setups{store: st, events: ev, methods: ms}
	bal := &Balance{store: st}
	chs := &Charges{store: st, events: ev, balance: bal, url: cfg.PublicURL}
	ps := &Payments{store: st, events: ev, methods: ms, charges: chs, url: cfg.PublicURL}
	co := &Checkout{store: st, events: ev, payments: ps, setups: ss, url: cfg.PublicURL}
	rs := &Refunds{store: st, events: ev, balance: bal}
	ds := &Disputes{store: st, events: ev, balance: bal}
	ws := &Warnings{store: st, events: ev}
	as := &Accounts{store: st, events: ev, url: cfg.PublicURL}
	ts := &Transfers{store: st, events: ev, balance: bal}
	es := &Endpoints{store: st}
	prs := &prices{store: st}
	mts := &Meters{store: st, events: ev}
	its := &items{store: st, events: ev}
	ins := &Invoices{store: st, events: ev, meters: mts, payments: ps, url: cfg.PublicURL}
	ps.refused, ps.collected = ins.refused, ins.collected
	subs := &subscriptions{store: st, events: ev, invoices: ins}
	bl := &Billing{store: st, events: ev, invoices: ins, subscriptions: subs}
	wh := &Webhooks{store: st, events: ev, billing: bl, secret: cfg.WebhookSecret, db: cfg.DB}
	fs := &Faults{store: st}
	ks := &Keys{store: st, billing: bl, balance: bal}
	f := &front{mux: http.NewServeMux(), pages: http.NewServeMux(), store: st, faults: fs, keys: ks, billing: bl}
	cs.routes(f)
	ms.routes(f)
	ss.routes(f)
	ps.routes(f)
	chs.routes(f)
	rs.routes(f)
	ds.routes(f)
	ws.routes(f)
	bal.routes(f)
	co.routes(f)
	mts.routes(f)
	mts.usageRoutes(f)
	subs.routes(f)
	ins.routes(f)
	its.routes(f)
	prs.routes(f)
	es.routes(f)
	as.routes(f)
	ts.routes(f)
	f.mux.Handle("/pay/", f.pages)
	f.mux.Handle("/3ds/", f.pages)
	return &Server{Accounts: as, Balance: bal, Billing: bl, Charges: chs, Checkout: co, Disputes: ds, Endpoints: es,
		Faults: fs, Invoices: ins, Keys: ks, Meters: mts, Payments: ps, Refunds: rs, Transfers: ts, Warnings: ws,
		Webhooks: wh, front: f, store: st, methods: ms}, nil
}

// Pages serves what a payer's browser sees, and not the API: it may stand in the open.
func (s *Server) Pages() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer reached(w)
		s.front.pages.ServeHTTP(w, r)
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
	s.front.mux.ServeHTTP(w, r)
}

// Kept is how many meters, products, prices and webhook endpoints there are.
func (s *Server) Kept() [4]int {
	s.store.mu.Lock()
	defer s.store.mu.Unlock()
	st := &s.store.state
	return [4]int{len(st.Meters.Order), len(st.Products.Order), len(st.Prices.Order), len(st.Endpoints.Order)}
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
