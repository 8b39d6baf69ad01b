package web_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"
)

// A platform operator sees strikes, bans, relief and unbilled time, and decides on a credit that waits.
func TestAdminGangs(t *testing.T) {
	t.Parallel()
	b := open(t)
	b.signUp()
	g := b.gangOf(false)
	b.makeAdmin()
	b.gangFacts(g)
	_, page := b.get("/admin/gangs")
	sound(t, "/admin/gangs", page)
	text := func(selector string) string { return strings.Join(strings.Fields(page.Find(selector).Text()), " ") }
	for selector, wants := range map[string][]string{
		"#strikes":            {"lisbon-1", "a rank was in doubt", "2", "an undecided end"},
		"#bans":               {"lisbon-1", "other"},
		"#relief":             {"train", "0.0255"},
		"#unbilled-renters":   {"other", "1390.030.0"},
		"#unbilled-operators": {"northlight1130.0", "other"},
		"#held":               {"gpu_failed", "lisbon-1"},
		"#starts":             {"other", "390.560.00.250000"},
	} {
		for _, want := range wants {
			if !strings.Contains(text(selector), want) {
				t.Errorf("%s has no %q: %s", selector, want, text(selector))
			}
		}
	}
	form := url.Values{"lease": {g.mine.ID.String()}, "decision": {"refuse"}}
	if res, doc := b.post("/admin/gangs/credits", form); res.StatusCode != http.StatusUnprocessableEntity ||
		doc.Find("#held .err").Length() != 1 {
		t.Error(res.Status, doc.Find("#held").Text())
	}
	form.Set("reason", "the renter's own doing")
	if _, page = b.post("/admin/gangs/credits", form); page.Find("#held .entry").Length() != 0 ||
		!strings.Contains(page.Find(".callout.s-ok").Text(), "refused") {
		t.Error(page.Find("main").Text())
	}
	if res, doc := b.post("/admin/gangs/credits", form); res.StatusCode != http.StatusConflict &&
		res.StatusCode != http.StatusNotFound {
		t.Error(res.Status, doc.Find("main").Text())
	}
}

// gangFacts adds strikes, bans and a held credit to a gang.
func (b *browser) gangFacts(g gang) {
	b.t.Helper()
	for range 2 {
		b.exec("INSERT INTO gang_strike (host_id, cluster_id, kind, at) VALUES ($1, $2, 'doubt', clock_timestamp())",
			g.mine.Host, g.cluster)
	}
	b.exec("INSERT INTO gang_strike (host_id, cluster_id, against_org, kind, at) VALUES ($1, $2, $3, 'undecided', "+
		"clock_timestamp())", g.mine.Host, g.cluster, g.theirs.Operator)
	b.exec("INSERT INTO pair_ban (a, b, until) VALUES ($1, $2, clock_timestamp() + interval '1 day')", g.theirs.Operator,
		g.mine.Host)
	b.exec("INSERT INTO start_hold (org_id, starts, ended_at, held_ms, gpu_ms, value) SELECT org_id, 3, "+
		"clock_timestamp(), 90500, 60000, 250000000 FROM cluster WHERE id = $1", g.cluster)
	ms := time.Now().Add(-50 * time.Minute).UnixMilli()
	b.exec("INSERT INTO service_credit (lease_id, cluster_id, reason, from_ms, through_ms, inducible, state) VALUES "+
		"($1, $2, 'gpu_failed', $3, $4, true, 'held')", g.mine.ID, g.cluster, ms, ms+60_000)
}
