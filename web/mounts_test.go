package web_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/PuerkitoBio/goquery"

	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/testing/fleettest"
)

// volume creates a volume of the visitor and returns its id.
func (b *browser) volume(name string) string {
	b.t.Helper()
	res, doc := b.post("/volumes", url.Values{"name": {name}, "size_gb": {"1"}})
	vol, ok := strings.CutPrefix(res.Request.URL.Path, "/volumes/")
	if !ok {
		b.t.Fatalf("no volume: %s", doc.Find("main").Text())
	}
	return vol
}

// chosen returns the chosen value of a select.
func chosen(doc *goquery.Document, id string) string {
	return doc.Find("#"+id+" option[selected]").AttrOr("value", "none chosen")
}

// The form has rows for volumes. A row is added and removed by a plain post that keeps everything that was typed.
func TestRentForm_RowsForVolumes(t *testing.T) {
	t.Parallel()
	b := open(t)
	if _, doc := b.get("/offers"); doc.Find("#mounts").Length() != 0 {
		t.Error("a visitor is offered volumes")
	}
	b.signUp()
	_, doc := b.get("/offers")
	rows, link := doc.Find("#mounts select").Length(), doc.Find(`#mounts a[href="/volumes#create"]`).Length()
	if rows != 0 || link != 1 {
		t.Errorf("without a volume: %d selects, %d links to create one", rows, link)
	}
	vol, other := b.volume("training-data"), b.volume("results")
	_, doc = b.get("/offers")
	if path := doc.Find("#mount-0-path").AttrOr("value", ""); path != "/data" || chosen(doc, "mount-0-mode") != "rw" ||
		!strings.Contains(doc.Find("#mount-0-volume").Text(), "training-data") {
		t.Errorf("the first row: %q %s", path, doc.Find("#mounts").Text())
	}
	form := url.Values{"q": {"vram_gb>=80"}, "image": {"x/y:1"}, "env": {"HF_TOKEN=s3cret"}, "mount_volume": {vol, other},
		"mount_path": {"/in", "/out"}, "mount_mode": {"ro", "rw"}, "mount_every": {"", "10"}}
	add := url.Values{"add_mount": {"1"}}
	for k, x := range form {
		add[k] = x
	}
	_, doc = b.post("/offers/form", add)
	if doc.Find("#mounts fieldset, #mounts [role=group]").Length() != 3 || chosen(doc, "mount-0-volume") != vol ||
		chosen(doc, "mount-0-mode") != "ro" || doc.Find("#mount-1-every").AttrOr("value", "") != "10" ||
		doc.Find("#mount-2-path").AttrOr("value", "") != "/data" || doc.Find("#env").Text() != "HF_TOKEN=s3cret" {
		t.Errorf("after a row was added: %s", doc.Find("#spec").Text())
	}
	doc.Find("#spec input:not([type=hidden]):not([type=checkbox]), #spec select, #spec textarea").Each(
		func(_ int, s *goquery.Selection) {
			if n := doc.Find(`label[for="` + s.AttrOr("id", "?") + `"]`).Length(); n != 1 {
				t.Errorf("the field %q has %d labels", s.AttrOr("name", ""), n)
			}
		})
	first := doc.Find(`#spec form button[type=submit]`).First()
	if first.AttrOr("formaction", "/quotes") != "/quotes" {
		t.Error("the Enter key presses a button of the rows")
	}
	quoted := id.New[id.Cluster]()
	b.exec(`INSERT INTO cluster (id, org_id, created_by, name, spec, image_ref, state, node_count, gpus_per_node, rate,
		currency, ended_at) SELECT $1, $2, id, 'train', '{"image":"job:1"}', 'job:1', 'failed', 1, 1, 7200000, 'USD', now()
		FROM app_user`, quoted, b.org())
	for from, want := range map[string]string{
		quoted.String(): "This is the spec of train.", "template:pytorch-ddp": "From the template",
	} {
		add["from"] = []string{from}
		_, doc = b.post("/offers/form", add)
		if text := doc.Find("#spec .callout").Text(); !strings.Contains(text, want) ||
			doc.Find("#spec input[name=from]").AttrOr("value", "") != from {
			t.Errorf("after a row was added to the form from %s: %q", from, text)
		}
	}
	form["remove_mount"] = []string{"0"}
	_, doc = b.post("/offers/form", form)
	if doc.Find("#mounts [role=group]").Length() != 1 || chosen(doc, "mount-0-volume") != other ||
		doc.Find("#image").AttrOr("value", "") != "x/y:1" ||
		!strings.Contains(doc.Find("#line-cli").Text(), other+":/out:every=600") {
		t.Errorf("after a row was removed: %s", doc.Find("#spec").Text())
	}
}

// What is wrong with a volume stands beside its field, in the words of the form.
func TestRentForm_MistakesInVolumes(t *testing.T) {
	t.Parallel()
	b := open(t)
	b.signUp()
	vol, other := b.volume("training-data"), b.volume("results")
	for field, c := range map[string]struct {
		volume, path, mode, every, want string
	}{
		"mount-1-volume": {"", "/out", "rw", "", "Choose a volume"},
		"mount-1-path":   {other, "/in/x", "rw", "", "the path of volume 1"},
		"mount-1-mode":   {other, "/out", "w", "", "ro"},
		"mount-1-every":  {other, "/out", "rw", "0.5", "Enter 1 to 1440 minutes"},
	} {
		res, doc := b.post("/quotes", url.Values{"image": {"x/y:1"}, "mount_volume": {vol, c.volume},
			"mount_path": {"/in", c.path}, "mount_mode": {"rw", c.mode}, "mount_every": {"", c.every}})
		got := doc.Find("#" + field + "-e").Text()
		if res.StatusCode != http.StatusUnprocessableEntity || !strings.Contains(got, c.want) ||
			doc.Find("#mounts .err").Length() != 1 || doc.Find("#mount-1-path").AttrOr("value", "") != c.path {
			t.Errorf("%s: %d %q, all: %q", field, res.StatusCode, got, doc.Find("#mounts .err").Text())
		}
	}
}

// Another organisation's volume is neither offered nor taken, and is refused as one that does not exist.
func TestRentForm_ForeignVolume(t *testing.T) {
	t.Parallel()
	b := open(t)
	b.signUp()
	b.volume("mine")
	org, user := fleettest.Org(t, b.db)
	foreign, domain := id.New[id.Volume](), id.New[id.DataDomain]()
	b.exec("INSERT INTO data_domain (id, org_id, key_sealed) VALUES ($1, $2, 'x')", domain, org)
	b.exec(`INSERT INTO volume (id, org_id, domain_id, name, size_limit, keep_last, created_by)
		VALUES ($1, $2, $3, 'their-secret', 1000000000, 3, $4)`, foreign, org, domain, user)
	told := map[string]string{}
	for kind, vol := range map[string]string{"foreign": foreign.String(), "none": id.New[id.Volume]().String()} {
		res, doc := b.post("/quotes", url.Values{"image": {"x/y:1"}, "mount_volume": {vol}, "mount_path": {"/data"},
			"mount_mode": {"ro"}, "mount_every": {""}})
		told[kind] = strings.ReplaceAll(strings.TrimSpace(doc.Find("#mount-0-volume-e").Text()), vol, "VOL")
		html, _ := doc.Html()
		if res.StatusCode != http.StatusUnprocessableEntity || strings.Contains(html, "their-secret") {
			t.Errorf("%s: %d %s", kind, res.StatusCode, doc.Find("#spec").Text())
		}
	}
	if told["foreign"] != "Volume VOL not found." || told["none"] != told["foreign"] {
		t.Errorf("the answers differ: %q", told)
	}
}

// quoteFor posts the form until the fleet's view, which is a second old, has the host.
func (b *browser) quoteFor(form url.Values) *goquery.Document {
	b.t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(100 * time.Millisecond) {
		_, doc := b.post("/quotes", form)
		if doc.Find("#quote").Length() == 1 {
			return doc
		}
		if time.Now().After(deadline) {
			b.t.Fatalf("no quote: %s", doc.Find("main").Text())
		}
	}
}

// A quote names its volumes and the price of storage; the cluster's page says how durable they are, and a button
// requests a snapshot.
func TestQuoteAndCluster_ShowVolumes(t *testing.T) {
	t.Parallel()
	b := open(t)
	b.signUp()
	vol := b.volume("training-data")
	b.sell(2)
	other, _ := fleettest.Org(t, b.db)
	b.exec("INSERT INTO host_agent (host_id, capabilities) SELECT id, $1 FROM host "+
		"ON CONFLICT (host_id) DO UPDATE SET capabilities = excluded.capabilities", []string{agentapi.CapVolumes})
	b.exec("UPDATE host SET org_id = $1, scratch_gb = 100", other)
	b.post("/billing/topups", url.Values{"amount": {"25.00"}})
	form := url.Values{"nodes": {"1"}, "gpus": {"1"}, "image": {"x/y:1"}, "name": {"train"}, "mount_volume": {vol},
		"mount_path": {"/data"}, "mount_mode": {"rw"}, "mount_every": {"10"}}
	doc := b.quoteFor(form)
	if text := doc.Find("#quote dl").Text(); !strings.Contains(text, "Volume at /data") ||
		!strings.Contains(text, "training-data, read and written, a snapshot every 10 min") {
		t.Errorf("the quote: %s", text)
	}
	if text := doc.Find("#storage").Text(); !strings.Contains(text,
		"Storage, billed apart by what is stored: 0.05 USD per GB and month") {
		t.Errorf("the price of storage: %q", text)
	}
	if _, page := b.get("/volumes/" + vol); !strings.Contains(page.Find("main").Text(), "0.05 USD per GB and month") {
		t.Errorf("the volume's page has another price: %s", page.Find("main").Text())
	}
	back, _ := doc.Find(`form[action$="/return"]`).Attr("action")
	_, page := b.post(back, nil)
	b.keepsMount(page, vol)

	quote := b.quoteFor(form).Find(`#quote input[name=quote]`).AttrOr("value", "")
	twin := b.quoteFor(form).Find(`#quote input[name=quote]`).AttrOr("value", "")
	res, _ := b.post("/clusters", url.Values{"quote": {quote}})
	at := res.Request.URL.Path
	b.durable(at, vol)
	_, page = b.get("/offers?again=" + strings.TrimPrefix(at, "/clusters/"))
	b.keepsMount(page, vol)
	res, page = b.post("/clusters", url.Values{"quote": {twin}})
	if text := page.Find("#quote .callout").Text(); res.StatusCode != http.StatusConflict ||
		!strings.Contains(text, "written by the cluster train") {
		t.Errorf("a second writer: %d %q", res.StatusCode, text)
	}

	b.exec("UPDATE cluster SET state = 'released', ended_at = now()")
	_, page = b.get("/volumes/" + vol)
	_, list := b.get("/volumes")
	if !strings.Contains(page.Find("main").Text(), "Last written by") ||
		!strings.Contains(list.Find("main").Text(), "last written by train") {
		t.Errorf("the writer has ended: %s", page.Find("main").Text())
	}
	b.exec("DELETE FROM volume_writer")
	for path, c := range map[string]struct {
		form   url.Values
		status int
	}{
		"/snapshots": {url.Values{"volume": {vol}}, http.StatusConflict},
		"/actions":   {url.Values{"action": {"restart"}}, http.StatusConflict},
		"/actions?":  {url.Values{"action": {"nonsense"}}, http.StatusUnprocessableEntity},
	} {
		res, page = b.post(at+path, c.form)
		if text := page.Find("main > .callout").Text(); res.StatusCode != c.status || text == "" ||
			page.Find("#mounts").Length() != 1 {
			t.Errorf("POST %s of an ended cluster: %d %q on %s", path, res.StatusCode, text, page.Find("main").Text())
		}
	}
}

func (b *browser) keepsMount(doc *goquery.Document, vol string) {
	b.t.Helper()
	if chosen(doc, "mount-0-volume") != vol || doc.Find("#mount-0-every").AttrOr("value", "") != "10" ||
		chosen(doc, "mount-0-mode") != "rw" || doc.Find("#mounts [role=group]").Length() != 1 {
		b.t.Errorf("the form lost its volume: %s", doc.Find("#spec").Text())
	}
}

// durable looks at the panel of a new cluster, presses its button, and looks again after its host has reported.
func (b *browser) durable(at, vol string) {
	b.t.Helper()
	_, page := b.get(at)
	if text := page.Find("#mounts").Text(); !strings.Contains(text, "no snapshot yet") ||
		strings.Contains(text, "requested") {
		b.t.Errorf("a new cluster: %s", text)
	}
	action := page.Find("#mounts form").AttrOr("action", "")
	named := page.Find("#mounts form input[name=volume]").AttrOr("value", "")
	_, page = b.post(action, url.Values{"volume": {named}})
	if text := page.Find("#mounts").Text(); !strings.Contains(text, "a snapshot is requested") {
		b.t.Errorf("after Snapshot now, sent %q to %q: %s", named, action, page.Find("main").Text())
	}
	v, err := id.Parse[id.Volume](vol)
	if err != nil {
		b.t.Fatal(err)
	}
	session := id.New[id.DataSession]()
	b.exec(`INSERT INTO data_session (id, volume_id, domain_id, mode, base_seq, base_packs, expires_at, pending_bytes,
		flush_eta_s, problem, reported_at) SELECT $1, id, domain_id, 'rw', 0, '', now() + interval '1 hour', 5000000, 42,
		'the store does not answer', now() FROM volume WHERE id = $2`, session, v)
	b.exec("UPDATE volume_writer SET session_id = $1 WHERE volume_id = $2", session, v)
	b.exec(`INSERT INTO volume_snapshot (volume_id, seq, id, root_id, root_pack, root_offset, root_length, root_size,
		packs, logical_bytes, added_bytes, files, cut_at, committed_at, cause, consistency)
		VALUES ($1, 1, $2, decode(repeat('00', 32), 'hex'), 0, 0, 0, 0, '', 1, 1, 1, now() - interval '3 minutes',
		now(), 'interval', 'exact')`, v, id.New[id.Snapshot]())
	b.exec("UPDATE volume SET head_seq = 1 WHERE id = $1", v)
	_, page = b.get(at)
	text := page.Find("#mounts").Text()
	for _, want := range []string{"/data", "training-data", "rw", "3 min", "ago", "all files of one moment",
		"5.0 MB, durable in about 42 s", "the store does not answer", time.Now().UTC().Format("2006-")} {
		if !strings.Contains(text, want) {
			b.t.Errorf("the cluster's page lacks %q: %s", want, text)
		}
	}
	if page.Find(`#mounts a[href="/volumes/`+vol+`"]`).Length() != 1 {
		b.t.Error("no link to the volume")
	}
}
