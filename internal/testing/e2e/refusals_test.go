package e2e

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/money"
)

// want checks an answer's status and code, and that nothing of the inside shows in a refusal.
func want(t *testing.T, what string, got reply, status int, code fault.Kind) {
	t.Helper()
	if got.status != status || fault.Kind(got.Code) != code {
		t.Errorf("%s: %d %s, want %d %s: %.300s", what, got.status, got.Code, status, code, got.body)
	}
	for _, leak := range []string{"pgx", "SQLSTATE", ".go:", "panic", "internal/"} {
		if strings.Contains(got.body, leak) {
			t.Errorf("%s: the answer shows %q: %s", what, leak, got.body)
		}
	}
}

// A specification that cannot be is refused with the place of the fault, and rents nothing.
func TestBadSpecs(t *testing.T) {
	t.Parallel()
	p := sharedPlatform(t)
	r := p.renter(t, 10*money.Unit)
	with := func(change string) string {
		return fmt.Sprintf(`{"nodes":1,"gpus_per_node":1,"image":%q,%s}`, p.DemoImage, change)
	}
	for _, tc := range []struct {
		body, at string
		status   int
		rent     bool // only a rental is refused: a quote needs no image
	}{
		{body: with(`"gpu_per_node":1`), at: "gpu_per_node"},
		{body: with(`"nodes":"two"`), at: "nodes"},
		{body: with(`"nodes":1.5`), at: "nodes"},
		{body: with(`"nodes":0`), at: "nodes"},
		{body: with(`"nodes":-1`), at: "nodes"},
		{body: with(`"nodes":1000000000`), at: "nodes"},
		{body: with(`"nodes":99999999999999999999999999`), at: "nodes"},
		{body: with(`"gpus_per_node":17`), at: "gpus_per_node"},
		{body: with(`"image":""`), at: "image", rent: true},
		{body: with(`"image":"UPPER CASE!"`), at: "image"},
		{body: with(`"env":{"NVIDIA_VISIBLE_DEVICES":"all"}`), at: "env"},
		{body: with(`"env":{"A=B":"x"}`), at: "env"},
		{body: with(`"env":{"A":5}`), at: "env"},
		{body: with(`"command":[""]`), at: "command"},
		{body: with(`"command":"train"`), at: "command"},
		{body: with(`"command":["a\u0000b"]`), at: "command"},
		{body: with(`"disk_gb":100000000`), at: "disk_gb"},
		{body: with(`"gpu":"gpu_model==H100"`), at: "gpu"},
		{body: with(`"gpu":"colour=red"`), at: "gpu"},
		{body: with(`"ports":[{"port":70000,"protocol":"http"}]`), at: "ports[0].port"},
		{body: with(`"max_price_per_hour":1.5`), at: "max_price_per_hour"},
		{body: with(`"max_price_per_hour":"-1"`), at: "max_price_per_hour"},
		{body: with(`"budget":"1e9"`), at: "budget"},
		{body: with(`"max_duration":59`), at: "max_duration"},
		{body: with(`"restart":"always"`), at: "restart"},
		{body: with(`"ssh_key_ids":["key_nonsense"]`), at: "ssh_key_ids"},
		{body: `{"nodes":1,"gpus_per_node":1}`, at: "image", rent: true},
		{body: `[]`},
		{body: `{"nodes":1`},
		{body: ``},
		{body: `null`},
		// Well over the limit: the server reads the rest, so that a client that still sends can read the answer.
		{body: with(`"env":{"A":"` + strings.Repeat("x", 3<<19) + `"}`), status: 413},
		{body: strings.Repeat("[", 60<<10)},
	} {
		for _, path := range []string{"/clusters", "/quotes"} {
			if tc.rent && path == "/quotes" {
				continue
			}
			got := r.call(t, "POST", path, tc.body)
			what := fmt.Sprintf("POST %s %.120s", path, tc.body)
			if tc.status == 413 {
				want(t, what, got, 413, fault.TooLarge)
				continue
			}
			if got.status == 400 { // no JSON at all
				want(t, what, got, 400, fault.Invalid)
			} else {
				want(t, what, got, 422, fault.Invalid)
			}
			named := slices.ContainsFunc(got.Errors, func(e struct {
				Location string `json:"location"`
				Message  string `json:"message"`
			}) bool {
				return strings.Contains(e.Location, tc.at)
			})
			if tc.at != "" && !named {
				t.Errorf("%s: the answer does not name %s: %s", what, tc.at, got.body)
			}
		}
	}
	if page, err := r.Clusters.List(t.Context(), client.ClustersQuery{}); err != nil || len(page.Items) != 0 {
		t.Errorf("rented all the same: %+v %v", page, err)
	}
}

// A renter neither sees nor learns of another org's objects.
func TestOthersThingsAreNotThere(t *testing.T) {
	t.Parallel()
	p := sharedPlatform(t)
	r, stranger := p.renter(t, 10*money.Unit), p.renter(t, 10*money.Unit)
	c := r.run(t, p.spec(1, 1, "sleep", "600"))
	defer func() {
		if _, err := r.Clusters.Release(t.Context(), c.ID); err != nil {
			t.Error(err)
		}
		r.await(t, c, client.Released)
	}()
	q, err := r.Quotes.Create(t.Context(), p.spec(1, 1))
	if err != nil {
		t.Fatal(err)
	}
	host := p.state.Hosts[0].ID
	for _, tc := range []struct{ method, path, body string }{
		{"GET", "/clusters/" + c.ID.String(), ""},
		{"GET", "/clusters/" + c.ID.String() + "?wait=released&timeout=5", ""},
		{"GET", "/clusters/" + c.ID.String() + "/events", ""},
		{"GET", "/clusters/" + c.ID.String() + "/logs", ""},
		{"GET", "/clusters/" + c.ID.String() + "/metrics", ""},
		{"GET", "/clusters/" + c.ID.String() + "/usage", ""},
		{"DELETE", "/clusters/" + c.ID.String(), ""},
		{"POST", "/clusters/" + c.ID.String() + "/actions", `{"action":"release"}`},
		{"GET", "/quotes/" + q.ID.String(), ""},
		{"DELETE", "/quotes/" + q.ID.String(), ""},
		{"POST", "/clusters", `{"quote_id":"` + q.ID.String() + `"}`},
		{"GET", "/hosts/" + host, ""},
		{"PATCH", "/hosts/" + host, `{"price_per_gpu_hour":"0.01"}`},
		{"POST", "/hosts/" + host + "/actions", `{"action":"drain"}`},
		{"GET", "/hosts/" + host + "/earnings", ""},
	} {
		want(t, tc.method+" "+tc.path, stranger.call(t, tc.method, tc.path, tc.body), 404, fault.NotFound)
	}
	for _, bad := range []string{"/clusters/nonsense", "/clusters/" + host, "/quotes/x", "/hosts/" + c.ID.String()} {
		if got := stranger.call(t, "GET", bad, ""); got.status != 404 && got.status != 422 {
			t.Errorf("GET %s: %d %s", bad, got.status, got.body)
		}
	}
	// A token of the same org with a narrower scope gets 403, not 404.
	narrow, err := r.Tokens.Create(t.Context(), client.CreateTokenRequest{Name: "reader", Scopes: []string{"read"},
		ExpiresIn: 0})
	if err != nil {
		t.Fatal(err)
	}
	reader := &renter{p: p, token: narrow.Secret, http: r.http}
	want(t, "a reader looks", reader.call(t, "GET", "/clusters/"+c.ID.String(), ""), 200, "")
	want(t, "a reader releases", reader.call(t, "DELETE", "/clusters/"+c.ID.String(), ""), 403, fault.Forbidden)
	reader.token = "muster_pat_nonsense"
	want(t, "a wrong token", reader.call(t, "GET", "/clusters", ""), 401, fault.Unauthorized)
	if got, err := r.Clusters.Get(t.Context(), c.ID); err != nil || got.State != client.Running {
		t.Errorf("the cluster is %s after all this: %v", got.State, err)
	}
}

// A request that cannot be met is refused with the reasons, before anything is held or charged.
func TestNoCapacityAndNoFunds(t *testing.T) {
	t.Parallel()
	p := sharedPlatform(t)
	r := p.renter(t, 0)
	// A machine that runs the tests may have less free disk than a spec's default asks for.
	spec := fmt.Sprintf(`{"nodes":1,"gpus_per_node":1,"disk_gb":1,"image":%q}`, p.DemoImage)
	want(t, "no funds", r.call(t, "POST", "/clusters", spec), 402, fault.InsufficientFunds)
	want(t, "no funds for a quote", r.call(t, "POST", "/quotes", spec), 402, fault.InsufficientFunds)
	r.topUp(t, 10*money.Unit)
	for _, tc := range []struct {
		change     func(*client.Spec)
		constraint string
	}{
		{func(s *client.Spec) { s.GPUsPerNode = 9 }, ""},
		{func(s *client.Spec) { s.Nodes = 5 }, ""},
		{func(s *client.Spec) { s.GPU = "gpu_model=A100" }, "gpu_model"},
		{func(s *client.Spec) { m := money.Micro(100_000); s.MaxPricePerHour = &m }, "price"},
		{func(s *client.Spec) { s.DiskGB = 90_000 }, "disk"},
		{func(s *client.Spec) { s.Network = &client.Network{Scope: "host"}; s.GPUsPerNode, s.Nodes = 8, 2 }, ""},
	} {
		s := p.spec(1, 1, "train")
		tc.change(&s)
		_, err := r.Clusters.Rent(t.Context(), s)
		f := fault.From(err)
		if f == nil || f.Kind != fault.NoCapacity {
			t.Errorf("%+v: %v", s, err)
		} else if why := fmt.Sprint(f.Extra["explain"]); !strings.Contains(why, "excluded_hosts") ||
			!strings.Contains(why, tc.constraint) {
			t.Errorf("%+v: explained by %s", s, why)
		}
	}
	cheap := p.spec(1, 1, "train")
	budget := money.Nano(1)
	cheap.Budget = &budget
	if _, err := r.Clusters.Rent(t.Context(), cheap); !fault.Is(err, fault.InsufficientFunds) && !fault.Is(err,
		fault.Invalid) {
		t.Errorf("a budget that covers no minute: %v", err)
	}
	r.owes(t)
}

// A quote holds its GPUs until it ends, and no longer. Nothing else may be rented meanwhile.
func quotesEnd(t *testing.T, p *platform) {
	r := p.renter(t, 10*money.Unit)
	q, err := r.Quotes.Create(t.Context(), p.spec(2, 8))
	if err != nil {
		t.Fatal(err)
	}
	other := p.renter(t, 10*money.Unit)
	if _, err := other.Clusters.Rent(t.Context(), p.spec(1, 1, "train")); !fault.Is(err, fault.NoCapacity) {
		t.Errorf("rented what a quote holds: %v", err)
	}
	// Two minutes pass.
	p.sql(t, "UPDATE quote SET expires_at = expires_at - interval '2 minutes'")
	p.sql(t, "UPDATE gpu_claim SET expires_at = expires_at - interval '2 minutes' WHERE expires_at IS NOT NULL")
	if _, err := r.Clusters.RentQuote(t.Context(), q.ID, client.Spec{}); !fault.Is(err, fault.Conflict) &&
		!fault.Is(err, fault.NotFound) {
		t.Errorf("rented by an expired quote: %v", err)
	}
	eventually(t, "the quote is expired and its GPUs are free", func() bool {
		got, err := r.Quotes.Get(t.Context(), q.ID)
		if err != nil {
			t.Fatal(err)
		}
		return got.State == "expired" && p.sql(t, "SELECT count(*) FROM gpu_claim WHERE ended_at IS NULL") == 0
	})
	q, err = r.Quotes.Create(t.Context(), p.spec(2, 8))
	if err != nil {
		t.Fatal(err)
	}
	if back, err := r.Quotes.Return(t.Context(), q.ID); err != nil || back.State != "returned" {
		t.Errorf("%+v %v", back, err)
	}
	if n := p.sql(t, "SELECT count(*) FROM gpu_claim WHERE ended_at IS NULL"); n != 0 {
		t.Errorf("%d GPUs are claimed after the quote was given back", n)
	}
	var f *fault.Fault
	if _, err := r.Clusters.RentQuote(t.Context(), q.ID, client.Spec{}); !errors.As(err, &f) {
		t.Error("rented by a returned quote")
	}
	r.owes(t)
}
