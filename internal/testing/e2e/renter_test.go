package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/money"
)

// renter is a fresh organisation that calls from an address of its own, so that tests do not share its limits.
type renter struct {
	*client.Client
	p               *platform
	email, password string
	token           string
	http            *http.Client
	browser         *http.Client // signed in; nil: not yet
	paid            money.Nano
}

// renter signs up a user who has paid in funds.
func (p *platform) renter(t *testing.T, funds money.Nano) *renter {
	t.Helper()
	from := &net.TCPAddr{IP: net.IPv4(127, byte(1+rand.IntN(254)), byte(rand.IntN(256)), byte(1+rand.IntN(254)))}
	dialer := &net.Dialer{LocalAddr: from, Timeout: 10 * time.Second}
	r := &renter{
		p:        p,
		email:    uuid.NewString() + "@muster.example",
		password: "a password for " + uuid.NewString(),
		http:     &http.Client{Transport: &http.Transport{DialContext: dialer.DialContext, MaxIdleConnsPerHost: 16}},
	}
	t.Cleanup(r.http.CloseIdleConnections)
	anonymous, err := client.New(p.URL, "", client.WithHTTP(r.http))
	if err != nil {
		t.Fatal(err)
	}
	who, err := anonymous.Account.SignUp(t.Context(), client.SignUpRequest{Email: r.email, Password: r.password,
		Name: t.Name()})
	if err != nil {
		t.Fatal(err)
	}
	r.token = who.Token
	r.connect(t)
	if funds > 0 {
		r.topUp(t, funds)
	}
	return r
}

// connect makes a new client: the platform's address may have changed.
func (r *renter) connect(t *testing.T) {
	t.Helper()
	var err error
	if r.Client, err = client.New(r.p.URL, r.token, client.WithHTTP(r.http)); err != nil {
		t.Fatal(err)
	}
}

func (r *renter) topUp(t *testing.T, amount money.Nano) {
	t.Helper()
	top, err := r.Billing.CreateTopUp(t.Context(), client.CreateTopUpRequest{Amount: amount.String()})
	if err != nil || top.State != "succeeded" {
		t.Fatalf("top-up of %s: %+v %v", amount, top, err)
	}
	r.paid += amount
}

// spec is a small cluster of the demo's image.
func (p *platform) spec(nodes, gpus int, command ...string) client.Spec {
	return client.Spec{Nodes: nodes, GPUsPerNode: gpus, Image: p.DemoImage, Command: command, DiskGB: 1}
}

// rent rents, and logs the cluster's story if the test fails. It releases the cluster afterwards: a test that ends half
// way keeps no GPUs from the others.
func (r *renter) rent(t *testing.T, s client.Spec) client.Cluster {
	t.Helper()
	c, err := r.Clusters.Rent(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			r.log(t, c)
		}
	})
	return c
}

// log logs what there is to know of a cluster, and releases it.
func (r *renter) log(t *testing.T, c client.Cluster) {
	ctx, cancel := afterwards(t)
	defer cancel()
	now, err := r.Clusters.Get(ctx, c.ID)
	t.Logf("%s: %s %s: %s (%v)\n%s\n%s", c.ID, now.State, now.Reason, now.Detail, err, r.timeline(t, c),
		r.p.text(t, clocks, c.ID))
	t.Log(r.p.about(append(r.p.leases(ctx, c), c.ID.String())...))
	_, _ = r.Clusters.Release(ctx, c.ID) // it has ended, or the platform has
}

// await waits for a state. Another end is a failure.
func (r *renter) await(t *testing.T, c client.Cluster, state client.State) client.Cluster {
	t.Helper()
	got, err := r.Clusters.Wait(t.Context(), c.ID, state, nil)
	if err != nil {
		t.Fatalf("wait for %s: %v\n%s", state, err, r.timeline(t, c))
	}
	return got
}

// run rents and waits until the cluster runs.
func (r *renter) run(t *testing.T, s client.Spec) client.Cluster {
	t.Helper()
	return r.await(t, r.rent(t, s), client.Running)
}

// timeline returns a cluster's story, for a failure's message.
func (r *renter) timeline(t *testing.T, c client.Cluster) string {
	t.Helper()
	ctx, cancel := afterwards(t)
	defer cancel()
	events, err := client.All(ctx, func(ctx context.Context, p client.PageOf) (client.Page[client.Event], error) {
		return r.Clusters.ListEvents(ctx, c.ID, p)
	}, client.PageOf{})
	if err != nil {
		return err.Error()
	}
	var b bytes.Buffer
	for _, e := range events {
		rank := ""
		if e.Rank != nil {
			rank = fmt.Sprintf("rank %d: ", *e.Rank)
		}
		fmt.Fprintf(&b, "%s %-16s %s%s %s\n", e.At.Format("15:04:05.000"), e.Kind, rank, e.Title, e.Detail)
	}
	return b.String()
}

// logs reads what a rank has printed so far.
func (r *renter) logs(t *testing.T, c client.Cluster, rank int) string {
	t.Helper()
	stream, err := r.Clusters.Logs(t.Context(), c.ID, client.LogsOf{Node: &rank})
	if err != nil {
		t.Logf("log of rank %d: %v", rank, err)
		return ""
	}
	defer stream.Close()
	b, err := io.ReadAll(stream)
	if err != nil {
		t.Errorf("log of rank %d: %v", rank, err)
	}
	return string(b)
}

// settle waits until the cluster is gone from its hosts and its usage is final, and checks that the renter paid just
// what the statement says.
func (r *renter) settle(t *testing.T, c client.Cluster) client.Usage {
	t.Helper()
	var u client.Usage
	eventually(t, "the cluster is settled", func() bool {
		now, err := r.Clusters.Get(t.Context(), c.ID)
		if err != nil {
			t.Fatal(err)
		}
		if u, err = r.Clusters.GetUsage(t.Context(), c.ID); err != nil {
			t.Fatal(err)
		}
		return now.State != client.Releasing && now.State.Ended() && u.Settled
	})
	var sum money.Nano
	for _, s := range u.Segments {
		sum += s.Cost
	}
	if sum != u.Cost || u.Posted != u.Cost || u.CostSoFar != u.Cost {
		t.Errorf("the lines add up to %s; cost %s, posted %s, so far %s", sum, u.Cost, u.Posted, u.CostSoFar)
	}
	return u
}

// owes checks that the renter's books say: paid in, minus these clusters' cost, nothing held.
func (r *renter) owes(t *testing.T, usages ...client.Usage) {
	t.Helper()
	want := r.paid
	for _, u := range usages {
		want -= u.Cost - u.Credited
	}
	b, err := r.Billing.GetBalance(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if b.Available != want || b.Held != 0 || b.BurnPerHour != 0 {
		t.Errorf("balance %s (held %s, burning %s), want %s", b.Available, b.Held, b.BurnPerHour, want)
	}
}

// reply is an answer as it came.
type reply struct {
	status int
	body   string
	Code   string `json:"code"`
	Detail string `json:"detail"`
	Errors []struct {
		Location string `json:"location"`
		Message  string `json:"message"`
	} `json:"errors"`
	ID      string `json:"id"`
	Explain []client.Exclusion
}

// call sends one request with a body that the client package would not send. header: key, value, …
func (r *renter) call(t *testing.T, method, path, body string, header ...string) reply {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, r.p.URL+"/api/v1"+path, bytes.NewReader([]byte(body)))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+r.token)
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := r.http.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	out := reply{status: resp.StatusCode, body: string(raw)}
	_ = json.Unmarshal(raw, &out) // a log is no JSON
	return out
}

// follow reads a rank's log from now on; the function it returns waits for the end and gives all of it.
func (r *renter) follow(ctx context.Context, t *testing.T, c client.Cluster, rank int) func() string {
	t.Helper()
	stream, err := r.Clusters.Logs(ctx, c.ID, client.LogsOf{Node: &rank, Follow: true})
	if err != nil {
		t.Fatal(err)
	}
	all := make(chan string, 1)
	go func() {
		defer stream.Close()
		b, _ := io.ReadAll(stream) // a broken stream shows as text that is not all there
		all <- string(b)
	}()
	return sync.OnceValue(func() string { return <-all })
}
