package market

import (
	"reflect"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/fleet/market/query"
)

// A page is the same part of the whole order, however few of it are kept while all are looked at.
func TestOrder_FirstIsTheSortedBeginning(t *testing.T) {
	t.Parallel()
	s := syntheticFleet(300, 5, 7)
	matches, _ := s.match(query.Query{})
	for _, field := range []string{"", "-price_per_gpu_hour", "gpus_free", "-vram_gb", "host_name", "reliability"} {
		o, err := parseOrder(field)
		if err != nil {
			t.Fatal(err)
		}
		sorted := slices.SortedFunc(slices.Values(matches), func(a, b *lot) int {
			x, y := o.cursor(a), o.cursor(b)
			return o.compare(&x, &y)
		})
		var got []*lot
		var after *cursor
		for more := true; more; {
			var rows []row
			rows, more = o.first(matches, after, 7)
			for _, r := range rows {
				got = append(got, r.lot)
			}
			after = &rows[len(rows)-1].at
		}
		if !slices.Equal(got, sorted) {
			t.Errorf("by %q: the pages are not the sorted lots", field)
		}
	}
}

// A search is computed once while nothing changes, and again after any change.
func TestPageCache_EndsWithAnyChange(t *testing.T) {
	t.Parallel()
	s := syntheticFleet(20, 2, 3)
	search := OfferSearch{Limit: 5}
	made := 0
	get := func() client.OfferPage {
		return s.pages.get(s.version, search, func() client.OfferPage {
			made++
			return s.search(query.Query{}, order{field: query.FieldNamed("price_per_gpu_hour")}, search.Limit, nil)
		})
	}
	first, inside := get(), cmp.Exporter(func(reflect.Type) bool { return true })
	if diff := cmp.Diff(first, get(), inside); diff != "" || made != 1 {
		t.Errorf("computed %d times:\n%s", made, diff)
	}
	var host *Host
	for _, e := range s.hosts {
		host = e.host
		break
	}
	for name, change := range map[string]func(){
		"remove": func() { s.Remove(host.ID) },
		"put":    func() { s.Put(host) },
		"gangs":  func() { s.SetGangs(&Gangs{}) },
	} {
		before := made
		if change(); get().Total < 1 || made != before+1 {
			t.Errorf("an old page after %s", name)
		}
	}
	s.Remove(host.ID)
	if p := get(); p.Total >= first.Total || cmp.Equal(p.Models, first.Models, inside) {
		t.Errorf("a host less: %d of %d offers, models %v as before", p.Total, first.Total, p.Models)
	}
}

func BenchmarkSearch(b *testing.B) {
	s := syntheticFleet(10_000, 50, 1000)
	for name, c := range map[string]struct {
		query, sort string
		cached      bool
	}{"first page": {"", "", true}, "all": {"", "", false}, "query": {"gpu_model=H100 gpus_free>=4", "-vram_gb", false}} {
		q, err := query.Parse(c.query)
		if err != nil {
			b.Fatal(err)
		}
		o, err := parseOrder(c.sort)
		if err != nil {
			b.Fatal(err)
		}
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				if c.cached {
					s.pages.get(s.version, OfferSearch{}, func() client.OfferPage { return s.search(q, o, 50, nil) })
				} else {
					s.search(q, o, 50, nil)
				}
			}
		})
	}
}
