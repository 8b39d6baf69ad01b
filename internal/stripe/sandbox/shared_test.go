package sandbox

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/musterhq/muster/internal/testing/dbtest"
)

func TestShared_EveryPartStored(t *testing.T) {
	t.Parallel()
	v := reflect.ValueOf(new(state)).Elem()
	seen := map[string]bool{}
	for i := range v.NumField() {
		f := v.Type().Field(i)
		name := f.Tag.Get("json")
		if _, ok := v.Field(i).Addr().Interface().(anyShelf); !ok || name == "" || seen[name] {
			t.Errorf("%s is no shelf with a name of its own: servers that share the state would not learn of it", f.Name)
		}
		seen[name] = true
	}
}

func TestShared_SurvivesRestart(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t)
	_, srv := serve(t, Config{DB: d})
	_, first := call(t, srv, "/v1/payment_intents", "k", cardForm)
	s, srv := serve(t, Config{DB: d})
	if _, again := call(t, srv, "/v1/payment_intents", "k", cardForm); again != first {
		t.Fatalf("%s\n%s", first, again)
	}
	if n, cents := s.Charges.Total(); n != 1 || cents != 500 || len(s.Webhooks.Deliveries()) != 3 {
		t.Fatal(n, cents)
	}
}

func TestShared_EarlierVersionsFile(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t)
	file := filepath.Join(t.TempDir(), "stripe.json")
	const old = `{"customers":{"objects":{"cus_1":{"id":"cus_1","object":"customer"}},"order":["cus_1"]},"keys":{"k":{"status":200}},"events":[{"id":"evt_1"}]}`
	if err := os.WriteFile(file, []byte(old), 0o600); err != nil {
		t.Fatal(err)
	}
	for range 2 { // the second finds that there is a state
		s, _ := serve(t, Config{DB: d, Earlier: file})
		if s.store.Customers.Objects["cus_1"] == nil || len(s.store.Customers.Order) != 1 {
			t.Fatal(s.store.Customers)
		}
		if err := os.WriteFile(file, []byte(`{"customers":{"objects":{"cus_2":{"id":"cus_2"}},"order":["cus_2"]}}`),
			0o600); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := New(Config{DB: dbtest.New(t), Earlier: filepath.Dir(file)}); err == nil {
		t.Fatal("a file that cannot be read was passed over")
	}
}

// Servers that share a state are one Stripe: each sees at once what another did, a key is one key, and they charge
// once.
func TestShared_State(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t)
	var servers []*Server
	var srvs []*httptest.Server
	for range 3 {
		s, srv := serve(t, Config{DB: d, WebhookSecret: "w"})
		servers, srvs = append(servers, s), append(srvs, srv)
	}
	_, body := call(t, srvs[0], "/v1/customers", "c", url.Values{"email": {"a@b.c"}})
	var cus struct{ ID string }
	if err := json.Unmarshal([]byte(body), &cus); err != nil {
		t.Fatal(err)
	}
	form := url.Values{"customer": {cus.ID}}
	for k, v := range cardForm {
		form[k] = v
	}
	const payments = 12
	var wg sync.WaitGroup
	answers := make([][3]string, payments)
	for i := range payments {
		for j := range srvs {
			wg.Go(func() {
				status, a := call(t, srvs[j], "/v1/payment_intents", "p"+string(rune('a'+i)), form)
				if status != 200 {
					t.Error(status, a)
				}
				answers[i][j] = a
			})
		}
	}
	wg.Wait()
	for _, a := range answers {
		if a[0] != a[1] || a[1] != a[2] {
			t.Fatalf("one key, several answers: %s", a)
		}
	}
	for _, s := range servers {
		if n, cents := s.Charges.Total(); n != payments || cents != payments*500 {
			t.Fatal(n, cents)
		}
		if !slices.Equal(s.store.Payments.Order, servers[0].store.Payments.Order) {
			t.Fatal("each has its own order")
		}
	}
	if got := servers[1].Refunds.IDs(); len(got) != 0 {
		t.Fatal(got)
	}
	call(t, srvs[2], "/v1/refunds", "r", url.Values{"payment_intent": {servers[0].store.Payments.Order[0]}})
	if got := servers[1].Refunds.IDs(); len(got) != 1 {
		t.Fatal(got)
	}
	want := int64(payments)*(500-feeOf(500)) - 500
	for _, s := range servers {
		if got := s.Balance.Cents("eur"); got != want {
			t.Fatal(got, want)
		}
	}
}

// Every event arrives though the servers share the work, and though one dies with what it took.
func TestShared_Deliveries(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t)
	later := func() time.Time { return time.Now().Add(2 * turn) }
	dying, srv := serve(t, Config{DB: d})
	call(t, srv, "/v1/payment_intents", "a", cardForm)
	if ds := dying.Webhooks.take(); len(ds) != 3 {
		t.Fatal(len(ds))
	}
	if ds := dying.Webhooks.take(); len(ds) != 0 {
		t.Fatal("taken twice")
	}
	var mu sync.Mutex
	got := map[string]int{}
	hook := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		var e event
		if err := json.Unmarshal(b, &e); err != nil {
			t.Error(err)
		}
		mu.Lock()
		defer mu.Unlock()
		if got[e.ID]++; got[e.ID] == 1 && len(got)%2 == 0 {
			w.WriteHeader(http.StatusServiceUnavailable) // sent again
		}
	}))
	defer hook.Close()
	for range 2 {
		s, srv := serve(t, Config{DB: d, Now: later})
		go s.Webhooks.Push(t.Context(), hook.URL)
		call(t, srv, "/v1/payment_intents", "b"+newID("k"), cardForm)
	}
	for deadline := time.Now().Add(time.Minute); ; {
		var waits bool
		dying.store.read(func() answer { waits = len(dying.store.Events.Order) > 0; return answer{} })
		mu.Lock()
		n := len(got)
		mu.Unlock()
		if n == 9 && !waits {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d events arrived, some wait: %v", n, waits)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// A server that cannot reach its state answers with an error, and what it had not stored did not happen.
func TestShared_StateUnavailable(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t)
	s, srv := serve(t, Config{DB: d})
	call(t, srv, "/v1/payment_intents", "a", cardForm)
	if _, err := d.Pool.Exec(t.Context(), "ALTER SEQUENCE sandbox_version RENAME TO away"); err != nil {
		t.Fatal(err)
	}
	if status, body := call(t, srv, "/v1/payment_intents", "b", cardForm); status != 503 {
		t.Fatal(status, body)
	}
	if _, err := d.Pool.Exec(t.Context(), "ALTER SEQUENCE away RENAME TO sandbox_version"); err != nil {
		t.Fatal(err)
	}
	if n, _ := s.Charges.Total(); n != 1 {
		t.Fatal(n)
	}
	if status, body := call(t, srv, "/v1/payment_intents", "b", cardForm); status != 200 {
		t.Fatal(status, body)
	}
	if n, _ := s.Charges.Total(); n != 2 {
		t.Fatal(n)
	}
}
