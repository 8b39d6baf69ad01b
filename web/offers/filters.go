package offers

import (
	"cmp"
	"net/url"
	"strings"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/fleet/market/query"
	"github.com/musterhq/muster/web/page"
	"github.com/musterhq/muster/web/view"
)

// filterTerms are the query terms that the market's filters set, by the name of the filter.
var filterTerms = []struct{ name, field, op string }{
	{"model", "gpu_model", "="},
	{"region", "region", "="},
	{"vram", "vram_gb", ">="},
	{"free", "gpus_free", ">="},
	{"power", "power_limit_w", ">="},
	{"busbw", "busbw_gbps", ">="},
	{"scratch", "scratch_gb", ">="},
	{"price", "price_per_gpu_hour", "<="},
	{"verified", "verified", "="},
	{"disk_limited", "disk_limited", "="},
	{"runtime", "runtime", "="},
}

// filter turns the filters into query terms and redirects to the search. The query is the only state: a search is a
// link, and a filter teaches the query language.
func (s *Pages) filter(v *page.Visit) error {
	q, err := query.Parse(v.R.FormValue("q"))
	if err != nil {
		return page.Back(v, marketLink(v.R.FormValue("q"), v.R.FormValue("sort"))) // the market page shows the error
	}
	for _, t := range filterTerms {
		value := strings.TrimSpace(v.R.FormValue(t.name))
		if edited, err := q.Set(t.field, t.op, value); err == nil {
			q = edited
			continue
		}
		// The market page shows the term with a caret under the invalid value.
		return page.Back(v, marketLink(strings.TrimSpace(q.String()+" "+t.field+t.op+value), v.R.FormValue("sort")))
	}
	return page.Back(v, marketLink(q.String(), v.R.FormValue("sort")))
}

// filters returns the filters as the query sets them, and the values to choose from.
func filters(q query.Query, page client.OfferPage) Filters {
	f := Filters{Value: map[string]string{}}
	for _, t := range filterTerms {
		f.Value[t.name] = q.Value(t.field, t.op)
	}
	for _, m := range page.Models {
		f.Models = append(f.Models, Facet{Value: m.Value, Label: view.ModelName(m.Value), Free: m.GPUsFree})
	}
	for _, r := range page.Regions {
		f.Regions = append(f.Regions, Facet{Value: r.Value, Label: r.Value, Free: r.GPUsFree})
	}
	return f
}

// marketLink returns the URL of a search.
func marketLink(query, sort string) string {
	v := url.Values{}
	if query != "" {
		v.Set("q", query)
	}
	if sort != "" {
		v.Set("sort", sort)
	}
	if len(v) == 0 {
		return "/offers"
	}
	return "/offers?" + v.Encode()
}

// sortLinks returns the searches sorted by each column; for the current column, in the opposite order.
func sortLinks(query, sort string) map[string]SortLink {
	sort = cmp.Or(sort, "price_per_gpu_hour")
	links := map[string]SortLink{}
	for field, first := range map[string]string{
		"price_per_gpu_hour": "price_per_gpu_hour",
		"gpus_free":          "-gpus_free",
		"vram_gb":            "-vram_gb",
		"busbw_gbps":         "-busbw_gbps",
		"reliability":        "-reliability",
		"gpu_model":          "gpu_model",
		"region":             "region",
	} {
		l := SortLink{URL: marketLink(query, first)}
		if now, down := strings.CutPrefix(sort, "-"); now == field {
			l.Order = "ascending"
			other := "-" + field
			if down {
				l.Order, other = "descending", field
			}
			l.URL = marketLink(query, other)
		}
		links[field] = l
	}
	return links
}
