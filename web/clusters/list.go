package clusters

import (
	"cmp"
	"net/url"
	"strings"

	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/fleet/cluster"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/money"
	"github.com/musterhq/muster/web/page"
	"github.com/musterhq/muster/web/view"
)

const clustersPerPage = 50

// tabs are the tabs of the list.
var tabs = []struct {
	key, name string
	filter    cluster.Filter
}{
	{"active", "Active", cluster.FilterActive},
	{"ended", "Ended", cluster.FilterEnded},
	{"all", "All", cluster.FilterAny},
}

// listView is what the visitor wants the list to show.
type listView struct{ tab, words, sort, group string }

func listOf(v *page.Visit) listView {
	get := func(name string) string { return strings.TrimSpace(v.R.FormValue(name)) }
	return listView{tab: get("show"), words: get("q"), sort: get("sort"), group: get("group")}
}

// href returns the list's URL with another tab.
func (l listView) href(tab string) string {
	q := url.Values{"show": {tab}}
	for name, value := range map[string]string{"q": l.words, "sort": l.sort, "group": l.group} {
		if value != "" {
			q.Set(name, value)
		}
	}
	return "/clusters?" + q.Encode()
}

// request returns the request for a page of the list. Groups are whole because the list is sorted by them.
func (l listView) request() cluster.ListRequest {
	r := cluster.ListRequest{Words: l.words, Sort: cluster.Sort(l.sort), Limit: clustersPerPage}
	for _, t := range tabs {
		if t.key == l.tab {
			r.Filter = t.filter
		}
	}
	switch label, byLabel := strings.CutPrefix(l.group, "label:"); {
	case l.group == "project":
		r.Sort = cluster.SortProject
	case byLabel:
		r.Sort, r.Label = cluster.SortLabel, label
	}
	return r
}

// groupOf returns the name of a cluster's group; "" if the list is not grouped.
func (l listView) groupOf(c cluster.Cluster) string {
	label, byLabel := strings.CutPrefix(l.group, "label:")
	switch {
	case l.group == "project":
		return cmp.Or(c.Spec.ProjectName(), "No project")
	case byLabel:
		return label + ": " + cmp.Or(c.Spec.Labels[label], "none")
	}
	return ""
}

// clusters lists the organisation's clusters. Without a tab it shows the active ones if there are any, else all.
func (s *Pages) clusters(v *page.Visit) error {
	l := listOf(v)
	known := l.tab != ""
	l.tab = cmp.Or(l.tab, "active")
	list, next, err := s.readList(v, l)
	if err == nil && len(list) == 0 && !known {
		l.tab = "all"
		list, next, err = s.readList(v, l)
	}
	if err != nil {
		return err
	}
	out := Clusters{Now: runningNow(list), Next: next, View: l}
	for _, c := range list {
		out.add(s.listRow(c), l.groupOf(c))
	}
	if len(list) == 0 && l.tab == "all" && l.words == "" {
		if out.Steps, err = s.FirstSteps(v); err != nil {
			return err
		}
	}
	return s.Render(v, ClustersPage(v.Page("Clusters", "clusters"), out))
}

// readList reads one page of the list, and the URL of the next one.
func (s *Pages) readList(v *page.Visit, l listView) (list []cluster.Cluster, next string, err error) {
	r := l.request()
	if r.After, err = page.After[id.Cluster](v); err != nil {
		return nil, "", err
	}
	if list, err = s.Clusters.Views.List(v.R.Context(), v.Who.Org, r); err != nil {
		return nil, "", err
	}
	if len(list) == clustersPerPage {
		next = l.href(l.tab) + "&after=" + list[len(list)-1].ID.String()
	}
	return list, next, nil
}

func (s *Pages) listRow(c cluster.Cluster) ClusterRow {
	row := ClusterRow{
		ID:        c.ID.String(),
		Name:      c.Name,
		Image:     c.Spec.Image,
		Summary:   Summary(c),
		Created:   view.Clock(c.CreatedAt, s.Now()),
		State:     clusterState(c),
		Formation: formation(c),
		Rate:      c.PricePerHour,
		Cost:      c.CostSoFar,
		Reason:    c.Reason.Happened(),
		Stops:     stops(c, s.Now()).Phrase,
	}
	for _, a := range c.Actions {
		row.MayRelease = row.MayRelease || a == cluster.ActionRelease
	}
	return row
}

// add adds a row to its group, which is the last one or a new one.
func (c *Clusters) add(r ClusterRow, group string) {
	if n := len(c.Groups); n == 0 || c.Groups[n-1].Name != group {
		c.Groups = append(c.Groups, ClusterGroup{Name: group})
	}
	g := &c.Groups[len(c.Groups)-1]
	g.Rows, g.Cost = append(g.Rows, r), g.Cost+r.Cost
	if r.MayRelease {
		g.Rate += r.Rate
		c.MayRelease = true
	}
}

// releaseClusters ends several clusters. The first request of it only shows what would end; the one that confirms does
// it, and shows what became of each.
func (s *Pages) releaseClusters(v *page.Visit) error {
	if err := v.R.ParseForm(); err != nil {
		return fault.New(fault.Invalid, "the form could not be read")
	}
	ids := v.R.PostForm["id"]
	if len(ids) > clustersPerPage {
		ids = ids[:clustersPerPage] // no page lists more
	}
	out := Released{Done: v.R.PostForm.Get("confirm") == "yes"}
	for _, text := range ids {
		line, rate := s.releaseOne(v, text, out.Done)
		out.Lines, out.Rate = append(out.Lines, line), out.Rate+rate
	}
	return s.Render(v, ReleasedPage(v.Page("Release clusters", "clusters"), out))
}

// releaseOne releases one cluster, or only looks at it, and returns the line about it and what it costs per hour.
func (s *Pages) releaseOne(v *page.Visit, text string, confirmed bool) (line ReleaseLine, rate money.Micro) {
	line = ReleaseLine{ID: text, Name: text, State: view.State{Word: "Not released", Icon: "failed", Tone: "bad"}}
	cl, err := id.Parse[id.Cluster](text)
	if err != nil {
		line.Text = "There is no such cluster."
		return line, 0
	}
	var c cluster.Cluster
	if confirmed {
		c, err = s.Clusters.Rentals.Release(v.R.Context(), v.Who, cl)
	} else {
		c, err = s.Clusters.Views.Get(v.R.Context(), v.Who.Org, cl)
	}
	if err != nil {
		line.Text = s.refusal(v, err)
		return line, 0
	}
	line.Name, line.State, line.Known = c.Name, clusterState(c), true
	switch {
	case c.State.Ended() && confirmed:
		line.Text = "Cost: " + view.Cents(c.CostSoFar) + " " + c.Currency + "."
	case c.State.Ended():
		line.Text = "It has ended already."
	default:
		rate = c.PricePerHour
		line.Text = Summary(c) + ", " + view.PerHour(rate) + " per hour."
	}
	return line, rate
}

// refusal returns why a cluster could not be released, as far as it may be shown.
func (s *Pages) refusal(v *page.Visit, err error) string {
	if f := fault.From(err); f != nil && f.Kind != fault.Internal {
		return view.Sentence(f.Message)
	}
	s.Log.ErrorContext(v.R.Context(), "release of several clusters", "err", err)
	return "Something went wrong. Try again in a moment."
}
