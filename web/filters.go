package web

import (
	"cmp"
	"net/url"
	"strings"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/fleet/market/query"
	"github.com/musterhq/muster/web/view"
)

// filterTerms are the terms of a query that the market's filters set, by the name of the filter.
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

// filter turns the filters into terms of the query and shows the search for it: the query stays the one truth, so that
// a search is a link and a filter teaches the language.
func (s *Web) filter(v *visit) error {
	q, err := query.Parse(v.r.FormValue("q"))
	if err != nil {
		return back(v, marketLink(v.r.FormValue("q"), v.r.FormValue("sort"))) // the page says what is wrong with it
	}
	for _, t := range filterTerms {
		value := strings.TrimSpace(v.r.FormValue(t.name))
		if edited, err := q.Set(t.field, t.op, value); err == nil {
			q = edited
			continue
		}
		// The page shows the term with a caret under the value that is none.
		return back(v, marketLink(strings.TrimSpace(q.String()+" "+t.field+t.op+value), v.r.FormValue("sort")))
	}
	return back(v, marketLink(q.String(), v.r.FormValue("sort")))
}

// filters shows the query's terms in the filters, and what may be chosen.
func filters(q query.Query, page client.OfferPage) view.Filters {
	f := view.Filters{Value: map[string]string{}}
	for _, t := range filterTerms {
		f.Value[t.name] = q.Value(t.field, t.op)
	}
	for _, m := range page.Models {
		f.Models = append(f.Models, view.Facet{Value: m.Value, Label: view.ModelName(m.Value), Free: m.GPUsFree})
	}
	for _, r := range page.Regions {
		f.Regions = append(f.Regions, view.Facet{Value: r.Value, Label: r.Value, Free: r.GPUsFree})
	}
	return f
}

// marketLink is a search as a link.
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

// sortLinks are the searches in the order of each column, the other way round for the one that orders now.
func sortLinks(query, sort string) map[string]view.SortLink {
	sort = cmp.Or(sort, "price_per_gpu_hour")
	links := map[string]view.SortLink{}
	for field, first := range map[string]string{
		"price_per_gpu_hour": "price_per_gpu_hour",
		"gpus_free":          "-gpus_free",
		"vram_gb":            "-vram_gb",
		"busbw_gbps":         "-busbw_gbps",
		"reliability":        "-reliability",
		"gpu_model":          "gpu_model",
		"region":             "region",
	} {
		l := view.SortLink{URL: marketLink(query, first)}
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
