package web_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/musterhq/muster/internal/testing/fleettest"
)

// An operator declares a shared file system, and sees which hosts have it and why others do not. A renter sees it in
// the rent form, and deletes its data once no cluster has it.
func TestShared_Pages(t *testing.T) {
	t.Parallel()
	b := open(t)
	b.signUp()
	if _, doc := b.get("/shared"); !strings.Contains(doc.Find("main").Text(), "No host has one now") {
		t.Errorf("%s", doc.Find("main").Text())
	}
	form := url.Values{"name": {"lab-nfs"}, "kind": {"nfs"}, "quota_gb": {"0"}}
	res, doc := b.post("/shared", form)
	if res.StatusCode != http.StatusUnprocessableEntity || doc.Find("#quota_gb-e").Length() != 1 ||
		doc.Find("#name").AttrOr("value", "") != "lab-nfs" || chosen(doc, "kind") != "nfs" {
		t.Errorf("%d %s", res.StatusCode, doc.Find("main").Text())
	}
	form.Set("quota_gb", "500")
	if _, doc = b.post("/shared", form); !strings.Contains(doc.Find("main .tbl").Text(), "No host has it now") {
		t.Fatalf("%s", doc.Find("main").Text())
	}
	if res, doc = b.post("/shared", form); res.StatusCode != http.StatusConflict {
		t.Errorf("declared twice: %d %s", res.StatusCode, doc.Find("main").Text())
	}
	b.sell(1)
	b.exec("UPDATE shared_fs SET marker = 'm'")
	b.exec("INSERT INTO shared_host (host_id, name, marker, fs_type, size_gb, problem) " +
		"SELECT id, 'lab-nfs', 'other', 'nfs4', 1000, 'another file system is mounted there' FROM host")
	_, doc = b.get("/shared")
	if text := doc.Find("main .tbl").Text(); !strings.Contains(text, "Another file system is mounted there.") {
		t.Errorf("%s", text)
	}
	b.exec("UPDATE shared_host SET marker = 'm', problem = ''")
	b.exec("INSERT INTO shared_folder (id, shared_id, org_id, used_bytes) " +
		"SELECT gen_random_uuid(), id, org_id, 2000000000 FROM shared_fs")
	_, doc = b.get("/shared")
	if text := doc.Find("main .tbl").Text(); !strings.Contains(text, "1 host") || !strings.Contains(text, "2.0 GB") ||
		!strings.Contains(text, "unless a cluster uses it before") {
		t.Errorf("%s", text)
	}
	if _, offers := b.get("/offers"); strings.Contains(offers.Find("#mounts").Text(), "lab-nfs") {
		t.Errorf("the rent form offers one's own: %s", offers.Find("#mounts").Text())
	}
	fs, _ := strings.CutSuffix(strings.TrimPrefix(doc.Find(`form[action$="/erase"]`).AttrOr("action", ""), "/shared/"),
		"/erase")
	if res, doc = b.post("/shared/"+fs+"/withdraw", nil); res.StatusCode != http.StatusConflict ||
		!strings.Contains(doc.Find("main").Text(), "1 organisation has data on lab-nfs") {
		t.Errorf("withdrawn with data: %d %s", res.StatusCode, doc.Find("main").Text())
	}
	operator, _ := fleettest.Org(t, b.db)
	b.exec("UPDATE host SET org_id = $1", operator)
	b.exec("UPDATE shared_fs SET org_id = $1", operator)
	_, offers := b.get("/offers")
	if text := offers.Find("#mount-0-volume").Text(); !strings.Contains(text, "lab-nfs, shared by 1 host, ") {
		t.Errorf("the rent form: %s", offers.Find("#mounts").Text())
	}
	if _, doc = b.post("/shared/"+fs+"/erase", nil); strings.Contains(doc.Find("main .tbl").Text(), "2.0 GB") {
		t.Errorf("%s", doc.Find("main").Text())
	}
	var state string
	if err := b.db.Pool.QueryRow(t.Context(), "SELECT state FROM shared_folder").Scan(&state); err != nil ||
		state != "deleting" {
		t.Errorf("the folder is %s, %v", state, err)
	}
	if res, _ = b.post("/shared/"+fs+"/erase", nil); res.StatusCode != http.StatusNotFound {
		t.Errorf("erased again: %d", res.StatusCode)
	}
}
