package web_test

import (
	"net/url"
	"strings"
	"testing"

	"github.com/PuerkitoBio/goquery"

	"github.com/musterhq/muster/internal/id"
)

// addClusters adds clusters to the visitor's organisation, by name and state.
func (b *browser) addClusters(states map[string]string) map[string]id.Cluster {
	b.t.Helper()
	ids := map[string]id.Cluster{}
	for name, state := range states {
		ids[name] = id.New[id.Cluster]()
		b.exec(`INSERT INTO cluster (id, org_id, created_by, name, project, spec, image_ref, state, node_count, gpus_per_node, rate,
			currency, ended_at) SELECT $1, $2, id, $3, 'vision', '{"project": "vision"}', 'job:1', $4, 1, 1, 7200000, 'USD',
			CASE WHEN $4 = 'released' THEN now() END FROM app_user`, ids[name], b.org(), name, state)
	}
	return ids
}

func names(doc *goquery.Document) string {
	return strings.Join(doc.Find("tbody .c-name a").Map(func(_ int, s *goquery.Selection) string { return s.Text() }), " ")
}

// The list shows what is active, finds clusters by words, and groups them with their sums.
func TestClustersAreFoundInTabsBySearchAndInGroups(t *testing.T) {
	t.Parallel()
	b := open(t)
	b.signUp()
	b.addClusters(map[string]string{"old": "released"})
	if _, doc := b.get("/clusters"); names(doc) != "old" || doc.Find(`.seg a[aria-current]`).Text() != "All" {
		t.Errorf("nothing is active: %q", doc.Find("main").Text())
	}
	b.addClusters(map[string]string{"new": "provisioning"})
	for path, want := range map[string]string{
		"/clusters":                              "new",
		"/clusters?show=ended":                   "old",
		"/clusters?show=all&sort=name":           "new old",
		"/clusters?show=all&q=OLD":               "old",
		"/clusters?show=all&group=project":       "old new",
		"/clusters?show=all&q=nothing":           "",
		"/clusters?show=active&q=old&sort=price": "",
	} {
		if _, doc := b.get(path); names(doc) != want {
			t.Errorf("%s: %q, want %q", path, names(doc), want)
		}
	}
	_, doc := b.get("/clusters?show=all&group=project")
	if s := doc.Find("tr.group").Text(); !strings.Contains(s, "vision") ||
		!strings.Contains(s, "2 clusters, 7.20 per hour") {
		t.Errorf("group: %q", s)
	}
	sound(t, "the list", doc)
	if s := doc.Find(`.seg a[href*="group=project"]`); s.Length() != 3 {
		t.Error("the tabs lose the group")
	}
}

// Several clusters are released together: nothing happens before the confirmation, and each has a line of its own.
func TestSeveralClustersAreReleasedTogether(t *testing.T) {
	t.Parallel()
	b := open(t)
	b.signUp()
	ids := b.addClusters(map[string]string{"one": "provisioning", "two": "provisioning", "gone": "released"})
	_, doc := b.get("/clusters?show=all")
	if n := doc.Find(`tbody input[type="checkbox"][form="release"]`).Length(); n != 2 {
		t.Errorf("%d clusters can be selected, want 2", n)
	}
	form := url.Values{"for_org": {b.org().String()}, "id": {ids["one"].String(), ids["gone"].String(),
		id.New[id.Cluster]().String()}}
	state := func(name string) (s string) {
		t.Helper()
		if err := b.db.Pool.QueryRow(t.Context(), "SELECT state FROM cluster WHERE name = $1", name).Scan(&s); err != nil {
			t.Fatal(err)
		}
		return s
	}
	_, doc = b.post("/clusters/release", form)
	if s := doc.Find("main").Text(); state("one") != "provisioning" || !strings.Contains(s, "Release 3 clusters?") ||
		!strings.Contains(s, "ends 7.20 per hour") || doc.Find(`input[name="id"]`).Length() != 3 {
		t.Errorf("one is %s: %q", state("one"), s)
	}
	form.Set("confirm", "yes")
	_, doc = b.post("/clusters/release", form)
	lines := doc.Find("#released tbody tr").Map(func(_ int, s *goquery.Selection) string {
		return strings.Join(strings.Fields(s.Text()), " ")
	})
	if len(lines) != 3 || !strings.HasPrefix(lines[0], "oneReleased") || !strings.HasPrefix(lines[1], "goneReleased") ||
		!strings.HasSuffix(lines[2], "Not releasedCluster not found.") {
		t.Errorf("%q", lines)
	}
	if state("one") == "provisioning" || state("two") != "provisioning" {
		t.Errorf("one is %s, two is %s", state("one"), state("two"))
	}
}
