package web_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/musterhq/muster/internal/id"
)

// contested lists the GPU of the visitor's first host with a host of another organisation, too.
func (b *browser) contested(uuid string) (mine, theirs string) {
	b.t.Helper()
	b.sell(1)
	if err := b.db.Pool.QueryRow(b.t.Context(), "UPDATE gpu SET uuid = $1, contest = 'holder' RETURNING host_id",
		uuid).Scan(new(id.Host)); err != nil {
		b.t.Fatal(err)
	}
	_, doc := b.get("/hosts")
	href, _ := doc.Find(`main a[href^="/hosts/host_"]`).Attr("href")
	org, h := id.New[id.Org](), id.New[id.Host]()
	b.exec("INSERT INTO org (id, name, personal) VALUES ($1, 'Squatters', false)", org)
	b.exec(`INSERT INTO host SELECT (jsonb_populate_record(h, jsonb_build_object('id', $1::uuid, 'org_id', $2::uuid,
		'name', 'squat-1', 'agent_key', md5($1::text) || md5($1::text)))).* FROM host h`, h, org)
	b.exec(`INSERT INTO gpu SELECT (jsonb_populate_record(g, jsonb_build_object('id', $1::uuid, 'host_id', $2::uuid,
		'contest', 'challenger', 'created_at', g.created_at + interval '1 hour'))).* FROM gpu g`, id.New[id.GPU](), h)
	return strings.TrimPrefix(href, "/hosts/"), h.String()
}

func TestContestedGPUs_AreDecidedByStaff(t *testing.T) {
	t.Parallel()
	b := open(t)
	b.signUp()
	mine, theirs := b.contested("GPU-1")
	_, doc := b.get("/hosts/" + mine)
	if text := doc.Find("main").Text(); !strings.Contains(text, "GPU 0 is listed by another operator, too") ||
		!strings.Contains(text, "contested, not offered") {
		t.Error(text)
	}
	b.makeAdmin()
	_, doc = b.get("/admin")
	if n := doc.Find(`#queues a[href="/admin/contests"].s-warn .n`).Text(); n != "1" {
		t.Errorf("%q contested GPUs", n)
	}
	_, doc = b.get("/admin/contests")
	if text := doc.Find("#open").Text(); doc.Find("#open tbody tr").Length() != 2 || doc.Find("#decided").Length() != 0 ||
		!strings.Contains(text, "Squatters") || !strings.Contains(text, "never by others") {
		t.Error(text)
	}
	sound(t, "/admin/contests", doc)

	award := url.Values{"gpu": {"GPU-1"}, "host": {mine}, "reason": {"the invoice of the vendor"}}
	for field, message := range map[string]string{"host": "Choose the host", "reason": "Give the reason"} {
		form := url.Values{"gpu": award["gpu"], "host": award["host"], "reason": award["reason"]}
		form.Set(field, "")
		res, doc := b.post("/admin/contests", form)
		if text := doc.Find("#open .entry form").Text(); res.StatusCode != http.StatusUnprocessableEntity ||
			!strings.Contains(text, message) {
			t.Errorf("without %s: %s %s", field, res.Status, text)
		}
	}
	if _, doc := b.post("/admin/contests", url.Values{
		"gpu":    {"GPU-2"},
		"host":   {mine},
		"reason": {"x"},
	}); !strings.Contains(
		doc.Find("main").Text(), "does not list GPU-2") {
		t.Error(doc.Find("main").Text())
	}
	award.Set("once", "a-word")
	for range 2 { // sent twice, it is decided once
		if res, doc := b.post("/admin/contests", award); res.StatusCode != http.StatusOK ||
			!strings.Contains(doc.Find("main").Text(), "The decision is recorded") {
			t.Error(res.Status)
		}
	}
	_, doc = b.get("/admin/contests")
	if text := doc.Find("#decided").Text(); doc.Find("#open .entry").Length() != 0 ||
		!strings.Contains(text, "the invoice of the vendor") || !strings.Contains(text, "Awarded, offered") {
		t.Error(doc.Find("main").Text())
	}
	var acts int
	if err := b.db.Pool.QueryRow(t.Context(), "SELECT count(*) FROM audit_event WHERE action = 'gpu.award' AND "+
		"user_id IS NOT NULL AND detail ->> 'reason' = 'the invoice of the vendor'").Scan(&acts); err != nil || acts != 1 {
		t.Errorf("%d decisions in the audit log: %v", acts, err)
	}
	_, doc = b.get("/hosts/" + mine)
	if text := doc.Find("main").Text(); strings.Contains(text, "is listed by another operator, too") {
		t.Error(text)
	}
	// Awarded to the other operator, it is no longer sold here.
	award.Set("host", theirs)
	award.Del("once")
	b.post("/admin/contests", award)
	_, doc = b.get("/hosts/" + mine)
	if text := doc.Find("main").Text(); !strings.Contains(text, "GPU 0 belongs to another operator") {
		t.Error(text)
	}
}
