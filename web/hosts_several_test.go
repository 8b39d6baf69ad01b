package web_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/PuerkitoBio/goquery"

	"github.com/musterhq/muster/internal/testing/fleettest"
)

// Several hosts get a price, are drained and resumed together, each after a page that says what would happen. A host of
// another organisation is not found, and one that refuses does not hold up the others.
func TestSeveralHostsAtOnce(t *testing.T) {
	t.Parallel()
	b := open(t)
	b.signUp()
	b.sell(2)
	b.sell(4)
	_, doc := b.get("/hosts")
	ids := doc.Find(`input[name=id][form=several-form]`).Map(func(_ int, s *goquery.Selection) string {
		return s.AttrOr("value", "")
	})
	if len(ids) != 2 {
		t.Fatalf("hosts to select: %v", ids)
	}
	prices := func() (out []string) {
		_, doc := b.get("/hosts")
		return doc.Find(".fold-hosts .c-hour").Map(func(_ int, s *goquery.Selection) string {
			return strings.TrimSpace(s.Text())
		})
	}
	form := url.Values{"act": {"price"}, "id": ids}
	_, doc = b.post("/hosts/several", form)
	if text := doc.Find("main").Text(); !strings.Contains(text, "Set the price of 2 hosts?") ||
		!strings.Contains(text, "2.00") || doc.Find("#price").Length() != 1 {
		t.Errorf("before: %s", text)
	}
	form.Set("confirm", "yes")
	form.Set("price", "much")
	if res, doc := b.post("/hosts/several", form); res.StatusCode != http.StatusUnprocessableEntity ||
		doc.Find("#price-e").Length() != 1 || strings.Join(prices(), " ") != "2.00 2.00" {
		t.Errorf("a price that is none: %s %s", res.Status, doc.Find("main").Text())
	}
	form.Set("price", "3.25")
	_, doc = b.post("/hosts/several", form)
	if text := doc.Find("#several").Text(); strings.Count(text, "3.25 per GPU-hour") != 2 ||
		strings.Join(prices(), " ") != "3.25 3.25" {
		t.Errorf("set: %s, %v", text, prices())
	}
	b.exec("UPDATE host SET state = 'draining' WHERE id = (SELECT id FROM host ORDER BY id LIMIT 1)")
	form = url.Values{"act": {"drain"}, "id": ids}
	if _, doc = b.post("/hosts/several", form); !strings.Contains(doc.Find("main").Text(), "No new rentals start") {
		t.Errorf("before a drain: %s", doc.Find("main").Text())
	}
	form.Set("confirm", "yes")
	b.post("/hosts/several", form)
	if _, doc = b.get("/hosts"); strings.Count(doc.Find(".fold-hosts").Text(), "Draining") != 2 {
		t.Errorf("drained: %s", doc.Find(".fold-hosts").Text())
	}
	if _, doc = b.post("/hosts/several", url.Values{"act": {"price"}}); !strings.Contains(doc.Find("main").Text(),
		"No host is selected") {
		t.Errorf("none: %s", doc.Find("main").Text())
	}
	other, _ := fleettest.Org(t, b.db)
	b.exec("UPDATE host SET org_id = $1", other)
	form = url.Values{"act": {"resume"}, "id": ids, "confirm": {"yes"}}
	if res, _ := b.post("/hosts/several", form); res.StatusCode != http.StatusNotFound {
		t.Errorf("another's hosts: %s", res.Status)
	}
}

// On the page of a host what can be done comes before the list of GPUs, in the document and so on a phone; what is
// rarely needed is folded.
func TestHost_ActionsComeFirst(t *testing.T) {
	t.Parallel()
	b := open(t)
	b.signUp()
	b.sell(2)
	_, doc := b.get("/hosts")
	_, doc = b.get(doc.Find(`main a[href^="/hosts/host_"]`).AttrOr("href", ""))
	html, err := doc.Find("main").Html()
	if err != nil {
		t.Fatal(err)
	}
	actions, price, gpus := strings.Index(html, `id="actions"`), strings.Index(html, `id="price_per_gpu_hour"`),
		strings.Index(html, "GPUs of this host")
	if actions < 0 || price < 0 || gpus < actions || gpus < price {
		t.Errorf("actions at %d, price at %d, GPUs at %d", actions, price, gpus)
	}
	for _, id := range []string{"data", "gang", "agent", "machine"} {
		if s := doc.Find("details#" + id); s.Length() != 1 || s.AttrOr("open", "no") != "no" {
			t.Errorf("%s is not folded", id)
		}
	}
}

// The top bar shows earnings to those who only rent out hosts, and the wallet to those who have a renter's money.
func TestTopBar_OfAnOperator(t *testing.T) {
	t.Parallel()
	b := open(t)
	b.signUp()
	bar := func() string {
		_, doc := b.get("/account")
		return strings.Join(doc.Find(".walletbar div").Map(func(_ int, s *goquery.Selection) string {
			return s.Find("dt").Text() + " " + strings.Join(strings.Fields(s.Find("dd").Text()), " ")
		}), ", ")
	}
	if got := bar(); !strings.HasPrefix(got, "Available 0.00") {
		t.Errorf("without hosts: %s", got)
	}
	b.sell(2)
	if got := bar(); got != "Earning 0.00 /h, Not paid out 0.00 USD, Next payout not set up" {
		t.Errorf("with hosts: %s", got)
	}
	if res, _ := b.get("/"); res.Request.URL.Path != "/hosts" {
		t.Errorf("the start page leads an operator to %s", res.Request.URL.Path)
	}
	b.earn("a", 12345*10_000_000, false)
	_, doc := b.get("/wallet-bar")
	if got := doc.Text(); !strings.Contains(got, "92.58") {
		t.Errorf("with earnings: %s", got)
	}
	b.exec(`INSERT INTO cluster (id, org_id, created_by, name, spec, image_ref, state, node_count, gpus_per_node, rate,
		currency) SELECT gen_random_uuid(), $1, id, 'train', '{}', 'job:1', 'provisioning', 1, 1, 7200000, 'USD'
		FROM app_user LIMIT 1`, b.org())
	if got := bar(); !strings.HasPrefix(got, "Available") {
		t.Errorf("with a cluster: %s", got)
	}
}
