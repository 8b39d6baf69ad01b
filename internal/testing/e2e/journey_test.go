package e2e

import (
	"bufio"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/money"
)

// doneLine is the demo job's last: the loss and the hash of the parameters the rank ended with.
var doneLine = regexp.MustCompile(`rank \d+ done (steps=\d+ loss=\S+ params=sha256:[0-9a-f]{64})`)

// A renter comes, pays in, rents two nodes by quote, watches a job that needs both, and pays its seconds.
func TestARentersJourney(t *testing.T) {
	t.Parallel()
	p := sharedPlatform(t)
	r := p.renter(t, 0)
	if me, err := r.Account.GetMe(t.Context()); err != nil || !slices.Contains(me.Scopes, "clusters") {
		t.Fatalf("%+v %v", me, err)
	}
	r.topUp(t, 20*money.Unit)
	eventually(t, "two hosts have room", func() bool { // other tests rent, too
		offers, err := r.Offers.Search(t.Context(), client.OffersQuery{PageOf: client.PageOf{},
			Q: "gpu_model=H100 vram_gb>=80 gpus_total=8", Sort: "price_per_gpu_hour"})
		if err != nil {
			t.Fatal(err)
		}
		if len(offers.Items) < 2 {
			return false
		}
		if o := offers.Items[0]; !o.Simulated || o.PricePerGPUHour.String() != "2.400000" {
			t.Errorf("the first offer: %+v", o)
		}
		return true
	})
	spec := p.endless()
	spec.Name, spec.GPU, spec.GPUsPerNode = "journey", "gpu_model=H100", 2
	spec.Env["SECRET"], spec.Env["TRAIN_STEP_MS"], spec.Env["TRAIN_LOG_EVERY"] = "s3cret", "20", "20"
	q, err := r.Quotes.Create(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	if left := time.Until(q.ExpiresAt); left < 55*time.Second || left > 121*time.Second || len(q.Nodes) != 2 ||
		q.Nodes[0].HostID == q.Nodes[1].HostID {
		t.Errorf("quote: %+v", q)
	}
	c, err := r.Clusters.RentQuote(t.Context(), q.ID, client.Spec{Name: "journey-2"})
	if err != nil {
		t.Fatal(err)
	}
	if c.PricePerHour != q.PricePerHour || c.Spec.Env["SECRET"] == "s3cret" {
		t.Errorf("rented at %s instead of %s, with env %v", c.PricePerHour, q.PricePerHour, c.Spec.Env)
	}
	logs, err := r.Clusters.Logs(t.Context(), c.ID, client.LogsOf{Follow: true})
	if err != nil {
		t.Fatal(err)
	}
	defer logs.Close()
	results, live, ended := map[string][]string{}, false, false
	for lines := bufio.NewScanner(logs); lines.Scan(); {
		if m := doneLine.FindStringSubmatch(lines.Text()); m != nil {
			results[m[1]] = append(results[m[1]], lines.Text())
		}
		if !live && strings.Contains(lines.Text(), "step 20/") {
			live = true
			r.seeRunning(t, c)
		}
		if !ended && strings.Contains(lines.Text(), "step 160/") { // 3.2 s
			ended = true
			r.enough(t, c)
		}
	}
	if !live || len(results) != 1 {
		t.Errorf("live %v, results %v", live, results)
	}
	for result, lines := range results {
		if len(lines) != 2 {
			t.Errorf("%s: reported by %q", result, lines)
		}
	}
	c = r.await(t, c, client.Released)
	if c.Reason != "completed" || c.Name != "journey-2" || c.Nodes[0].ExitCode == nil || *c.Nodes[0].ExitCode != 0 {
		t.Errorf("%s %s %+v", c.Name, c.Reason, c.Nodes[0])
	}
	u := r.settle(t, c)
	if u.Cost <= 0 || u.GPUSeconds != gpuSeconds(t, u) || c.EndedAt.Sub(*c.RunningAt) < 3*time.Second {
		t.Errorf("usage %+v of a run from %s to %s", u, c.RunningAt, c.EndedAt)
	}
	r.owes(t, u)
	r.bookedOnce(t, u)
	if log := r.logs(t, c, 1); !doneLine.MatchString(log) {
		t.Errorf("the log after the end: %q", log)
	}
	p.check(t)
}

// seeRunning looks at a running cluster from all sides.
func (r *renter) seeRunning(t *testing.T, c client.Cluster) {
	t.Helper()
	r.await(t, c, client.Running) // a rank's first lines may be here before the server knows that the last one started
	c, err := r.Clusters.Get(t.Context(), c.ID)
	if err != nil || c.State != client.Running || !c.Billing || c.Network.BusbwGbps <= 0 || len(c.Nodes) != 2 ||
		len(c.Nodes[1].GPUs) != 2 {
		t.Errorf("%+v %v", c, err)
	}
	m, err := r.Clusters.GetMetrics(t.Context(), c.ID, client.MetricsQuery{From: time.Time{}, To: time.Time{}, Step: 0})
	if err != nil || len(m.GPUs) != 4 {
		t.Errorf("metrics: %+v %v", m, err)
	}
	b, err := r.Billing.GetBalance(t.Context())
	if err != nil || b.Held <= 0 || b.BurnPerHour != c.PricePerHour || b.RunwaySeconds == nil {
		t.Errorf("balance while running: %+v %v", b, err)
	}
}

// gpuSeconds adds up the statement's lines.
func gpuSeconds(t *testing.T, u client.Usage) client.Seconds {
	t.Helper()
	var ms int64
	for _, s := range u.Segments {
		ms += int64(s.GPUs) * s.To.Sub(s.From).Milliseconds()
	}
	return client.Seconds(ms)
}

// bookedOnce finds the usage in the org's books, to the last nano-unit.
func (r *renter) bookedOnce(t *testing.T, usages ...client.Usage) {
	t.Helper()
	all, err := client.All(t.Context(), r.Billing.ListTransactions, client.PageOf{})
	if err != nil {
		t.Fatal(err)
	}
	var change money.Nano
	for _, x := range all {
		change += x.Available + x.Held
	}
	want := r.paid
	for _, u := range usages {
		want -= u.Cost - u.Credited
	}
	if change != want {
		t.Errorf("the transactions add up to %s, want %s: %+v", change, want, all)
	}
}
