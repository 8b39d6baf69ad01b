package web_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/testing/fleettest"
)

// An ended cluster's page shows its spec, and fills the rent form with it: also what the form does not show, but never
// the values of the environment.
func TestRentAgain_FillsTheForm(t *testing.T) {
	t.Parallel()
	b := open(t)
	b.signUp()
	cl := id.New[id.Cluster]()
	b.exec(`INSERT INTO cluster (id, org_id, created_by, name, spec, image_ref, state, node_count, gpus_per_node, rate,
		currency, ended_at) SELECT $1, $2, id, 'train', $3, 'job:1', 'failed', 2, 4, 7200000, 'USD', now()
		FROM app_user`, cl, b.org(), `{"image":"job:1","nodes":2,"gpus_per_node":4,"gpu":"vram_gb>=80","labels":{"team":"nlp"},
		"entrypoint":["bash","-c"],"command":["echo one\necho two"],"env":{"HF_TOKEN":"***"},"max_price_per_hour":"9.00"}`)
	_, doc := b.get("/clusters/" + cl.String())
	text := doc.Find("#spec").Text()
	for _, want := range []string{"job:1", "bash -c", "HF_TOKEN", "team=nlp", "echo two", "-e HF_TOKEN"} {
		if !strings.Contains(text, want) {
			t.Errorf("the spec lacks %q: %s", want, text)
		}
	}
	again, _ := doc.Find(`#spec a[href^="/offers?again="]`).Attr("href")
	_, doc = b.get(again)
	for id, want := range map[string]string{"nodes": "2", "gpus": "4", "image": "job:1", "entrypoint": "bash -c"} {
		if got := doc.Find("#spec #"+id).AttrOr("value", ""); got != want {
			t.Errorf("%s is %q, want %q", id, got, want)
		}
	}
	if got := doc.Find("#command").Text(); got != "'echo one\necho two'" {
		t.Errorf("the command is %q", got)
	}
	if q := doc.Find("#q").AttrOr("value", ""); q != "vram_gb>=80" {
		t.Errorf("the query is %q", q)
	}
	form := url.Values{"from": {cl.String()}, "image": {"job:1"}, "env": {"HF_TOKEN=s3cret"},
		"command": {"'echo one\r\necho two'"}}
	_, lines := b.post("/offers/lines", form)
	for _, want := range []string{"--label team=nlp", "--max-price 9.00", "echo one\necho two", `"$HF_TOKEN"`} {
		if !strings.Contains(lines.Text(), want) {
			t.Errorf("the lines lack %q: %s", want, lines.Text())
		}
	}
	if strings.Contains(lines.Text(), "s3cret") {
		t.Errorf("a secret: %s", lines.Text())
	}
	form["env"] = []string{"HF_TOKEN=***"}
	if _, doc = b.post("/quotes", form); !strings.Contains(doc.Find("#env-e").Text(), "HF_TOKEN") {
		t.Errorf("the mask is rented: %s", doc.Find("#spec").Text())
	}
}

// A quote shows what it is for. Changing or cancelling it shows the form as it was, without the secret values of the
// environment.
func TestQuote_ShowsItsSpecAndKeepsTheForm(t *testing.T) {
	t.Parallel()
	b := open(t)
	b.signUp()
	b.sell(2)
	other, _ := fleettest.Org(t, b.db)
	b.exec("UPDATE host SET org_id = $1", other)
	form := url.Values{"nodes": {"1"}, "gpus": {"2"}, "image": {"pytorch/pytorch:2.4.0"},
		"command": {"python train.py"},
		"env":     {"HF_TOKEN=s3cret"}, "ports": {"8888"}, "budget": {"12.50"}, "hours": {"6"}, "q": {"vram_gb>=80"}}
	res, doc := b.post("/quotes", form)
	if text := doc.Find("#spec .callout").Text(); res.StatusCode != http.StatusPaymentRequired ||
		!strings.Contains(text, "add at least 0.07 USD.") || doc.Find(`#spec .callout a[href^="/billing"]`).Length() != 1 {
		t.Fatalf("%s without credit: %s", res.Status, text)
	}
	b.post("/billing/topups", url.Values{"amount": {"25.00"}})
	_, doc = b.post("/quotes", form)
	text := doc.Find("#quote").Text()
	for _, want := range []string{"pytorch/pytorch:2.4.0", "python train.py", "HF_TOKEN", "8888", "12.50 USD", "6 h"} {
		if !strings.Contains(text, want) {
			t.Errorf("the quote lacks %q: %s", want, text)
		}
	}
	action, _ := doc.Find(`form[action$="/return"]`).Attr("action")
	_, doc = b.post(action, url.Values{})
	for id, want := range map[string]string{"q": "vram_gb>=80", "gpus": "2", "image": "pytorch/pytorch:2.4.0",
		"ports": "8888", "budget": "12.50", "hours": "6"} {
		if got := doc.Find("#"+id).AttrOr("value", ""); got != want {
			t.Errorf("%s is %q, want %q", id, got, want)
		}
	}
	if env := doc.Find("#env").Text(); !strings.Contains(env, "HF_TOKEN=") || strings.Contains(env, "s3cret") {
		t.Errorf("the environment is %q", env)
	}
}
