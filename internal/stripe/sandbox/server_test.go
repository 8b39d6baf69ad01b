package sandbox

import (
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"
)

func serve(t *testing.T, cfg Config) (*Server, *httptest.Server) {
	t.Helper()
	s, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewServer(s)
	t.Cleanup(srv.Close)
	return s, srv
}

func call(t *testing.T, srv *httptest.Server, path, key string, form url.Values) (int, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, srv.URL+path, strings.NewReader(form.Encode()))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.Header.Set("Authorization", "Bearer sk_test")
	r.Header.Set("Stripe-Version", APIVersion)
	if key != "" {
		r.Header.Set("Idempotency-Key", key)
	}
	resp, err := srv.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(b)
}

var cardForm = url.Values{
	"amount":         {"500"},
	"currency":       {"eur"},
	"payment_method": {"pm_card_visa"},
	"confirm":        {"true"},
}

func TestPost_KeyRequired(t *testing.T) {
	t.Parallel()
	_, srv := serve(t, Config{})
	if status, body := call(t, srv, "/v1/payment_intents", "", cardForm); status != 400 {
		t.Fatal(status, body)
	}
}

func TestPost_KeyBoundToParameters(t *testing.T) {
	t.Parallel()
	s, srv := serve(t, Config{})
	_, first := call(t, srv, "/v1/payment_intents", "k", cardForm)
	if _, again := call(t, srv, "/v1/payment_intents", "k", cardForm); again != first {
		t.Fatalf("%s\n%s", first, again)
	}
	other := url.Values{"amount": {"501"}, "currency": {"eur"}}
	if status, body := call(t, srv, "/v1/payment_intents", "k", other); status != 400 ||
		!strings.Contains(body, "idempotency_error") {
		t.Fatal(status, body)
	}
	s.Keys.Forget()
	if _, fresh := call(t, srv, "/v1/payment_intents", "k", cardForm); fresh == first {
		t.Fatal("a forgotten key was remembered")
	}
	if n, _ := s.Charges.Total(); n != 2 {
		t.Fatal(n)
	}
}

// Every event arrives, however often the webhook fails.
func TestPush_UntilAccepted(t *testing.T) {
	t.Parallel()
	s, srv := serve(t, Config{WebhookSecret: "w"})
	var mu sync.Mutex
	got := map[string]bool{}
	refused := false
	all := make(chan struct{})
	hook := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, err := io.ReadAll(r.Body)
		if err != nil || r.Header.Get("Stripe-Signature") == "" {
			t.Error(err)
		}
		mu.Lock()
		defer mu.Unlock()
		if !refused {
			refused = true
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		if got[string(b)] = true; len(got) == 6 {
			select {
			case <-all:
			default:
				close(all)
			}
		}
	}))
	defer hook.Close()
	go s.Webhooks.Push(t.Context(), hook.URL)
	call(t, srv, "/v1/payment_intents", "a", cardForm)
	call(t, srv, "/v1/payment_intents", "b", cardForm)
	select {
	case <-all:
	case <-time.After(time.Minute):
		t.Fatalf("only %d events arrived", len(got))
	}
}

func TestPages_Checkout(t *testing.T) {
	t.Parallel()
	s, srv := serve(t, Config{})
	form := url.Values{
		"mode":                                   {"payment"},
		"line_items[0][price_data][unit_amount]": {"705"},
		"line_items[0][price_data][currency]":    {"eur"},
		"success_url":                            {srv.URL + "/v1/none"},
		"cancel_url":                             {srv.URL},
	}
	if status, body := call(t, srv, "/v1/checkout/sessions", "k", form); status != 200 {
		t.Fatal(status, body)
	}
	id := s.store.Sessions.Order[0]
	resp, err := srv.Client().Get(srv.URL + "/pay/" + id)
	if err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(resp.Body)
	_ = resp.Body.Close() // read whole
	if err != nil || !strings.Contains(string(b), "7.05") {
		t.Fatal(string(b), err)
	}
	resp, err = srv.Client().PostForm(srv.URL+"/pay/"+id, url.Values{"method": {"pm_card_visa"}})
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close() // of no interest
	if n, cents := s.Charges.Total(); n != 1 || cents != 705 {
		t.Fatal(n, cents)
	}
}
