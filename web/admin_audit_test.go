package web_test

import (
	"encoding/csv"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/PuerkitoBio/goquery"
)

// The audit log gives the whole date of each act, and offers the acts that it knows.
func TestAdminAudit_DatesAndActs(t *testing.T) {
	t.Parallel()
	b := open(t)
	b.signUp()
	b.makeAdmin()
	_, doc := b.get("/admin/audit")
	if got := doc.Find("#acts .c-time").First().Text(); !strings.Contains(got, time.Now().UTC().Format(" Jan 2006 ")[4:]) {
		t.Errorf("an act happened at %q", got)
	}
	if doc.Find(`#acts-known option[value="billing.topup"]`).Text() != "Added credit" {
		t.Error("the form does not offer the acts")
	}
}

// Sessions, clusters and organisations are named in the audit log, and what is found can be taken as a file.
func TestAdminAudit_NamesAndCSV(t *testing.T) {
	t.Parallel()
	b := open(t)
	b.signUp()
	b.makeAdmin()
	g := b.gangOf(true)
	b.exec(`INSERT INTO audit_event (id, org_id, action, object, detail, address) VALUES
		(gen_random_uuid(), $1, 'cluster.release', $2, '{"reason": "=1+1"}', '')`, b.org(), g.cluster.String())
	row := func(action string) *goquery.Selection {
		_, doc := b.get("/admin/audit?action=" + action)
		return doc.Find("#acts tbody tr").First().Find(".c-on")
	}
	if on := row("cluster.release"); !strings.Contains(on.Text(), "train") || on.Find(".sub2").AttrOr("title", "") !=
		g.cluster.String() {
		t.Errorf("a cluster is called %q", on.Text())
	}
	if on := row("session.open").Text(); !strings.Contains(on, "mira@northlight.example, ") {
		t.Errorf("a session is called %q", on)
	}
	_, doc := b.get("/admin/audit?action=cluster.release")
	res, err := b.http.Get(b.url + doc.Find(`a[href^="/admin/audit.csv"]`).AttrOr("href", ""))
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	rows, err := csv.NewReader(res.Body).ReadAll()
	if err != nil || len(rows) != 2 || rows[1][1] != "cluster.release" || rows[1][5] != g.cluster.String() ||
		rows[1][6] != "train" || !strings.HasPrefix(res.Header.Get("Content-Type"), "text/csv") {
		t.Errorf("%v %v", rows, err)
	}
	b.post("/signout", nil)
	if res, _ := b.get("/admin/audit.csv"); res.StatusCode != http.StatusNotFound {
		t.Errorf("for everybody: %s", res.Status)
	}
}
