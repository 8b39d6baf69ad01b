package web_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/testing/fleettest"
)

// A template's form gets a quote in one click, with its parameters; visitors see the built-in ones.
func TestTemplates_StartAQuote(t *testing.T) {
	t.Parallel()
	b := open(t)
	_, doc := b.get("/templates")
	if n := doc.Find(`.templates form[action="/quotes"]`).Length(); n != 3 ||
		!strings.Contains(doc.Text(), "Estimate the price") {
		t.Fatalf("visitors see %d templates: %s", n, doc.Find("main").Text())
	}
	b.signUp()
	b.sell(4)
	other, _ := fleettest.Org(t, b.db)
	b.exec("UPDATE host SET org_id = $1", other) // an organisation cannot rent from itself
	res, doc := b.post("/quotes", url.Values{"template": {"pytorch-ddp"}, "p.nodes": {"1"}, "p.gpus_per_node": {"99"},
		"p.env.STEPS": {"7"}})
	if doc.Find("#gpus-e").Length() != 1 || !strings.Contains(doc.Find("#env").Text(), "STEPS=7") ||
		!strings.Contains(doc.Find("#command").Text(), "torch.distributed.run") {
		t.Errorf("%d: a mistake is not shown in the form, or the form is not the template's: %s", res.StatusCode,
			doc.Find("#spec").Text())
	}
	res, doc = b.post("/quotes", url.Values{"template": {"jupyterlab"}, "p.gpus_per_node": {"1"}})
	if res.StatusCode != http.StatusPaymentRequired || doc.Find("#image").AttrOr("value", "") == "" {
		t.Errorf("without credit: %d %s", res.StatusCode, doc.Find("#spec").Text())
	}
	if res, _ = b.post("/quotes", url.Values{"template": {"nothing"}}); res.StatusCode != http.StatusNotFound {
		t.Errorf("an unknown template: %d", res.StatusCode)
	}
}

// The spec of a cluster is saved as a template, shown, used and deleted.
func TestTemplates_SaveUseDelete(t *testing.T) {
	t.Parallel()
	b := open(t)
	b.signUp()
	cl := id.New[id.Cluster]()
	b.exec(`INSERT INTO cluster (id, org_id, created_by, name, spec, image_ref, state, node_count, gpus_per_node, rate,
		currency, ended_at) SELECT $1, $2, id, 'train', $3, 'job:1', 'failed', 1, 1, 7200000, 'USD', now()
		FROM app_user`, cl, b.org(), `{"image":"job:1","env":{"HF_TOKEN":"***"},"disk_gb":77,"labels":{"team":"nlp"}}`)
	_, doc := b.get("/templates?from=" + cl.String())
	if doc.Find("#save").Length() != 1 {
		t.Fatal(doc.Find("main").Text())
	}
	_, doc = b.post("/templates", url.Values{"from": {cl.String()}, "name": {"Not A Name"}})
	if doc.Find("#name-e").Length() != 1 {
		t.Errorf("a bad name is not shown beside its field: %s", doc.Find("#save").Text())
	}
	_, doc = b.post("/templates", url.Values{"from": {cl.String()}, "name": {"mine"}, "title": {"My training"}})
	if text := doc.Find("#t-mine").Text(); !strings.Contains(text, "My training") || !strings.Contains(text, "job:1") {
		t.Fatalf("%s", doc.Find("main").Text())
	}
	if doc.Find(`#t-mine input[name="p.env.HF_TOKEN"]`).AttrOr("type", "") != "password" {
		t.Error("a secret has no field")
	}
	_, doc = b.get("/offers?template=mine")
	if doc.Find("#disk_gb").AttrOr("value", "") != "77" || doc.Find("#env").Text() != "HF_TOKEN=***" {
		t.Errorf("the form is not the template's: %s", doc.Find("#spec").Text())
	}
	_, lines := b.post("/offers/lines", url.Values{"from": {"template:mine"}, "image": {"job:1"}})
	if !strings.Contains(lines.Text(), "--label team=nlp") {
		t.Errorf("what the form does not show is lost: %s", lines.Text())
	}
	_, doc = b.post("/templates/mine/delete", nil)
	if doc.Find("#t-mine").Length() != 0 {
		t.Error("it is not deleted")
	}
}
