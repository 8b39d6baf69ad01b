package market_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/fleet/market"
	"github.com/musterhq/muster/internal/id"
)

// Of hosts with one price the one that holds the image is taken, whatever else would decide.
func TestHostsThatHoldTheImageComeFirst(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.host("one", 2, "2.00")
	two := w.host("two", 8, "2.00") // breaks up more than the others: not taken first without the image
	w.host("three", 2, "2.00")
	w.exec("INSERT INTO host_image (host_id, ref, digest) VALUES ($1, 'index.docker.io/pytorch/pytorch:2.4', 'sha256:0')",
		two)
	s := spec(1, 1, "")
	s.Image = "pytorch/pytorch:2.5"
	if n := w.plan(w.tenant, s).Nodes[0]; n.Host == two || n.Cached {
		t.Errorf("%+v", n)
	}
	s.Image = "pytorch/pytorch:2.4"
	p := w.plan(w.tenant, s)
	if n := p.Nodes[0]; n.Host != two || !n.Cached || !strings.Contains(n.Lines[1].Text, "holds the image") {
		t.Errorf("%+v", n)
	}
	s.Nodes = 3
	held := 0
	for _, n := range w.plan(w.tenant, s).Nodes {
		if n.Cached {
			held++
		}
	}
	if held != 1 {
		t.Errorf("%d of three nodes on the host that holds it", held)
	}
}

func TestACheaperHostIsTakenWithoutTheImage(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	holds, cheap := w.host("holds", 2, "2.00"), w.host("cheap", 2, "1.00")
	w.exec("INSERT INTO host_image (host_id, ref, digest) VALUES ($1, 'index.docker.io/pytorch/pytorch:2.4', 'sha256:0')",
		holds)
	s := spec(1, 1, "")
	s.Image = "pytorch/pytorch:2.4"
	if n := w.plan(w.tenant, s).Nodes[0]; n.Host != cheap || n.Cached {
		t.Errorf("dearer than need be: %+v", n)
	}
}

// Popular lists the images that several organisations rented recently and several hosts pulled without credentials. It
// never lists an organisation's own image, one that needs a password, or one that no host could pull.
func TestPopularImages(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	orgs := []id.Org{w.org(), w.org(), w.org()}
	hosts := []id.Host{w.host("one", 1, ""), w.host("two", 1, "")}
	rent := func(image, digest, age string, by ...id.Org) {
		t.Helper()
		for _, o := range by {
			w.exec(`INSERT INTO cluster (id, org_id, created_by, name, spec, image_ref, image_digest, state, node_count,
				gpus_per_node, rate, currency, created_at)
				VALUES ($1, $2, $3, 'x', '{}', $4, $5, 'released', 1, 1, 1, 'USD', clock_timestamp() -
				$6::interval)`, id.New[id.Cluster](), o, w.user, image, digest, age)
		}
	}
	public := func(ref string, on ...id.Host) {
		t.Helper()
		for _, h := range on {
			w.exec("INSERT INTO host_image (host_id, ref, digest) VALUES ($1, $2, 'sha256:0')", h, ref)
		}
	}
	rent("pytorch/pytorch:2.4", "sha256:0", "1 day", orgs...)
	public("index.docker.io/pytorch/pytorch:2.4", hosts...)
	rent("ubuntu", "sha256:1", "1 hour", orgs[0], orgs[1], orgs[1], orgs[1])
	public("index.docker.io/library/ubuntu:latest", hosts...)
	rent("old/old:1", "sha256:2", "8 days", orgs...)
	public("index.docker.io/old/old:1", hosts...)
	rent("mine/mine:1", "sha256:3", "1 day", orgs[0], orgs[0], orgs[0], orgs[0]) // one customer's
	public("index.docker.io/mine/mine:1", hosts...)
	rent("secret/secret:1", "sha256:4", "1 day", orgs...) // no host pulled it without credentials
	rent("odd/odd:1", "sha256:5", "1 day", orgs...)
	public("index.docker.io/odd/odd:1", hosts[0]) // one host says so
	rent("gone/gone:1", "", "1 day", orgs...)     // never pulled
	public("index.docker.io/gone/gone:1", hosts...)

	got, err := w.m.Popular(t.Context())
	if want := []string{"index.docker.io/pytorch/pytorch:2.4", "index.docker.io/library/ubuntu:latest"}; err != nil ||
		!slices.Equal(got, want) {
		t.Errorf("%v, %v, want %v", got, err, want)
	}
	rent("new/new:1", "sha256:6", "1 minute", orgs...)
	public("index.docker.io/new/new:1", hosts...)
	if again, _ := w.m.Popular(t.Context()); !slices.Equal(again, got) {
		t.Errorf("asked again at once: %v", again)
	}
	later, err := market.New(w.d, nil, market.Config{
		Currency: currency,
		Now:      func() time.Time { return time.Now().Add(time.Hour) },
	})
	if err != nil {
		t.Fatal(err)
	}
	if again, err := later.Popular(t.Context()); err != nil || len(again) != 3 {
		t.Errorf("another replica: %v, %v", again, err)
	}
}

// A host whose line has little data left, or whose agent keeps to no limit, is named no popular images to fetch.
func TestPopularImagesAreNamedWithinTheDataCap(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	hosts := []id.Host{w.host("one", 1, ""), w.host("two", 1, "")}
	for _, o := range []id.Org{w.org(), w.org(), w.org()} {
		w.exec(`INSERT INTO cluster (id, org_id, created_by, name, spec, image_ref, image_digest, state, node_count,
			gpus_per_node, rate, currency) VALUES ($1, $2, $3, 'x', '{}', 'ubuntu', 'sha256:1', 'released', 1, 1, 1, 'USD')`,
			id.New[id.Cluster](), o, w.user)
	}
	for _, h := range hosts {
		w.exec("INSERT INTO host_image (host_id, ref, digest) VALUES ($1, 'index.docker.io/library/ubuntu:latest', "+
			"'sha256:0')", h)
	}
	for _, tc := range []struct {
		name         string
		capGB, usedB int64 // capGB 0: no cap
		capabilities []string
		images       int
		bytes        int64
	}{
		{"no cap", 0, 0, nil, 1, 0},
		{"half of its cap left", 1, 500_000_000, []string{agentapi.CapPopularBound}, 1, 400_000_000},
		{"an agent that keeps to no limit", 1, 500_000_000, nil, 0, 0},
		{"a tenth of its cap left", 1, 900_000_000, []string{agentapi.CapPopularBound}, 0, 0},
	} {
		w.exec("UPDATE host SET down_cap_gb = nullif($2, 0) WHERE id = $1", hosts[0], tc.capGB)
		w.exec("DELETE FROM host_pulls")
		w.exec("DELETE FROM host_month_traffic")
		w.exec("INSERT INTO host_pulls (host_id, counter, bytes) VALUES ($1, 'a', $2)", hosts[0], tc.usedB)
		images, bytes, err := w.m.PopularFor(t.Context(), hosts[0], tc.capabilities)
		if err != nil || len(images) != tc.images || bytes != tc.bytes {
			t.Errorf("%s: %v, %d bytes, %v", tc.name, images, bytes, err)
		}
	}
}
