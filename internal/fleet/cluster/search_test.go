package cluster_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/fleet/cluster"
	"github.com/musterhq/muster/internal/id"
)

// A list is filtered, searched and sorted, and its pages together are the whole list in that order.
func TestListFiltersSearchesAndSorts(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldConfig{hosts: 1, gpus: 1})
	ids := map[string]id.Cluster{}
	for _, c := range []struct{ name, project, image, labels, state, rate string }{
		{"alpha", "vision", "pytorch/pytorch:2.4.0", `{"team": "red"}`, "running", "3000000"},
		{"beta", "", "vllm/serve:1", `{"team": "blue"}`, "released", "1000000"},
		{"Gamma", "vision", "pytorch/pytorch:2.5.0", `null`, "failed", "2000000"},
		{"delta", "audio", "busybox:1", `{}`, "provisioning", "10000000"},
	} {
		ids[c.name] = id.New[id.Cluster]()
		w.exec(`INSERT INTO cluster (id, org_id, created_by, name, project, labels, spec, image_ref, state, node_count, gpus_per_node,
			rate, currency, ended_at) VALUES ($1, $2, $3, $4, $5, $6::text::jsonb, '{}', $7, $8, 1, 1, $9::text::bigint, 'USD',
			CASE WHEN $8 IN ('released', 'failed') THEN now() END)`,
			ids[c.name], w.renter.Org, w.renter.User, c.name, c.project, c.labels, c.image, c.state, c.rate)
	}
	of := ids["beta"].String()
	for name, c := range map[string]struct {
		r    cluster.ListRequest
		want string
	}{
		"all":                 {cluster.ListRequest{}, "delta Gamma beta alpha"},
		"active":              {cluster.ListRequest{Filter: cluster.FilterActive}, "delta alpha"},
		"ended":               {cluster.ListRequest{Filter: cluster.FilterEnded}, "Gamma beta"},
		"one state":           {cluster.ListRequest{Filter: "failed"}, "Gamma"},
		"oldest first":        {cluster.ListRequest{Sort: cluster.SortOldest}, "alpha beta Gamma delta"},
		"by name":             {cluster.ListRequest{Sort: cluster.SortName}, "alpha beta delta Gamma"},
		"dearest first":       {cluster.ListRequest{Sort: "-price"}, "delta alpha Gamma beta"},
		"by project":          {cluster.ListRequest{Sort: cluster.SortProject}, "beta delta alpha Gamma"},
		"by label":            {cluster.ListRequest{Sort: cluster.SortLabel, Label: "team"}, "Gamma delta beta alpha"},
		"a word of the image": {cluster.ListRequest{Words: "PyTorch"}, "Gamma alpha"},
		"two words":           {cluster.ListRequest{Words: "pytorch 2.5"}, "Gamma"},
		"a label":             {cluster.ListRequest{Words: "team=red"}, "alpha"},
		"a project":           {cluster.ListRequest{Words: "vision", Sort: cluster.SortName}, "alpha Gamma"},
		"an id":               {cluster.ListRequest{Words: of}, "beta"},
		"the end of an id":    {cluster.ListRequest{Words: "cl_" + of[len(of)-6:]}, "beta"},
		"nothing":             {cluster.ListRequest{Words: "alpha beta"}, ""},
		"active by name":      {cluster.ListRequest{Filter: cluster.FilterActive, Sort: cluster.SortName}, "alpha delta"},
	} {
		var got []string
		for c.r.Limit = 1; len(got) < 9; {
			list, err := w.clusters[0].Views.List(w.ctx, w.renter.Org, c.r)
			if w.must(err); len(list) == 0 {
				break
			}
			got, c.r.After = append(got, list[0].Name), list[0].ID
		}
		if diff := cmp.Diff(c.want, strings.Join(got, " ")); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	stranger := w.SignUp("stranger")
	if list, err := w.clusters[0].Views.List(w.ctx, stranger.Org, cluster.ListRequest{Words: "alpha",
		Limit: 9}); err != nil || len(list) != 0 {
		t.Errorf("a stranger finds %d, %v", len(list), err)
	}
	for _, r := range []cluster.ListRequest{{Sort: "cost", Limit: 1}, {Words: strings.Repeat("a ", 9), Limit: 1}} {
		if _, err := w.clusters[0].Views.List(w.ctx, w.renter.Org, r); !fault.Is(err, fault.Invalid) {
			t.Errorf("%+v: %v", r, err)
		}
	}
}
