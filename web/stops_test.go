package web_test

import (
	"strings"
	"testing"

	"github.com/musterhq/muster/internal/id"
)

// Head, strip and list show the same next stop of a cluster, and no other.
func TestPagesShowOneNextStop(t *testing.T) {
	t.Parallel()
	b := open(t)
	b.signUp()
	cl := id.New[id.Cluster]()
	b.exec(`INSERT INTO cluster (id, org_id, created_by, name, spec, image_ref, state, node_count, gpus_per_node, rate, currency,
		max_duration_s, budget, go_at, running_at, run_until)
		SELECT $1, $2, id, 'train', '{"budget": "20"}', 'job:1', 'running', 1, 1, 7200000, 'USD', 5400, 20000000000,
		now() - interval '1 hour', now() - interval '1 hour', now() + interval '40 minutes' FROM app_user`, cl, b.org())
	const because = "its longest duration is reached"
	_, doc := b.get("/clusters/" + cl.String())
	if s := doc.Find("#stops-because").Text(); !strings.HasPrefix(s, "Stops at ") || !strings.HasSuffix(s, because) {
		t.Errorf("head: %q", s)
	}
	sound(t, "the cluster's page", doc)
	strip := doc.Find("#stops")
	if s := strip.Text(); !strings.HasPrefix(s, "29 min") && !strings.HasPrefix(s, "30 min") {
		t.Errorf("strip: %q", s)
	}
	if s := strip.Next().Text(); !strings.HasSuffix(s, because) {
		t.Errorf("strip: %q", s)
	}
	if s := doc.Find(".strip").Text(); strings.Contains(s, "Runway") || strings.Contains(s, " more") {
		t.Errorf("the strip has another answer: %q", s)
	}
	_, doc = b.get("/clusters")
	if s := doc.Find("tbody .c-state").Text(); !strings.Contains(s, because) {
		t.Errorf("list: %q", s)
	}
	b.exec("UPDATE cluster SET state = 'released', reason = 'released_by_user', ended_at = now(), stop_at = now()")
	_, doc = b.get("/clusters/" + cl.String())
	if doc.Find("#stops-because").Length() != 0 || !strings.Contains(doc.Find(".strip").Text(), "Stopped") {
		t.Errorf("after the end: %q", doc.Find(".strip").Text())
	}
}
