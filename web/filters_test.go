package web_test

import (
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/PuerkitoBio/goquery"
)

func TestFiltersAreTermsOfTheQuery(t *testing.T) {
	t.Parallel()
	b := open(t)
	for _, c := range []struct {
		form url.Values
		want string // the query shown
		bad  bool
	}{
		{url.Values{
			"model": {"NVIDIA H100 80GB HBM3"},
			"vram":  {" 80 "},
		}, `gpu_model = "NVIDIA H100 80GB HBM3" vram_gb >= 80`, false},
		{url.Values{
			"q":        {"vram_gb>=40 nvlink=true"},
			"vram":     {"80"},
			"verified": {"true"},
		}, "vram_gb >= 80 nvlink = true verified = true", false},
		{url.Values{"q": {"vram_gb>=40 nvlink=true"}}, "nvlink = true", false},
		{url.Values{"q": {"gpus_free>=2"}, "free": {"2"}, "scratch": {"500"}}, "gpus_free >= 2 scratch_gb >= 500", false},
		{url.Values{"price": {"cheap"}}, "price_per_gpu_hour<=cheap", true},
		{url.Values{"q": {"gpu_model=>80"}, "free": {"2"}}, "gpu_model=>80", true},
	} {
		_, doc := b.get("/offers/filter?" + c.form.Encode())
		if got := doc.Find("#q").AttrOr("value", ""); got != c.want {
			t.Errorf("%v shows the query %q, want %q", c.form, got, c.want)
		}
		if bad := doc.Find("#q-e").Length() == 1; bad != c.bad {
			t.Errorf("%v: told of a mistake %t, want %t", c.form, bad, c.bad)
		}
	}
	_, doc := b.get("/offers?q=vram_gb%3E%3D80&sort=-vram_gb")
	if got := doc.Find("#f-vram").AttrOr("value", ""); got != "80" {
		t.Errorf("the filter shows %q", got)
	}
	if got := doc.Find(".filters input[name=sort]").AttrOr("value", ""); got != "-vram_gb" {
		t.Errorf("the filters forget the order: %q", got)
	}
}

// filterNames returns the names of the filters in the selection, in order.
func filterNames(in *goquery.Selection) []string {
	return in.Find("input:not([type=hidden]), select").Map(func(_ int, s *goquery.Selection) string {
		return s.AttrOr("name", "")
	})
}

func TestMarket_FoldsRareFilters(t *testing.T) {
	t.Parallel()
	b := open(t)
	_, doc := b.get("/offers")
	all, folded := filterNames(doc.Find("form.filters")), filterNames(doc.Find("form.filters details"))
	shown := all[:len(all)-len(folded)]
	if want := []string{"model", "region", "free", "vram", "price"}; !slices.Equal(shown, want) || len(folded) != 6 {
		t.Errorf("shown: %v, folded: %v", shown, folded)
	}
	for path, want := range map[string]bool{"/offers": false, "/offers?q=vram_gb%3E%3D80": false,
		"/offers?q=verified%3Dtrue": true, "/offers?q=scratch_gb%3E%3D5": true} {
		_, doc := b.get(path)
		if _, open := doc.Find("form.filters details").Attr("open"); open != want {
			t.Errorf("%s: open %t, want %t", path, open, want)
		}
	}
}

func TestMarket_OffersWhatWasMeant(t *testing.T) {
	t.Parallel()
	b := open(t)
	b.signUp()
	b.sell(2)
	_, doc := b.get("/offers?q=vramgb%3E%3D8&sort=region")
	if !strings.Contains(doc.Find("#q-e").Text(), "did you mean vram_gb?") {
		t.Errorf("the error is %q", doc.Find("#q-e").Text())
	}
	for path, want := range map[string]string{
		"/offers?q=vramgb%3E%3D8&sort=region": "vram_gb>=8",
		"/offers?q=h1oo":                      "h100",
	} {
		_, doc := b.get(path)
		link := doc.Find(".meant a")
		if link.Text() != want {
			t.Fatalf("%s suggests %q, want %q: %s", path, link.Text(), want, doc.Find("main").Text())
		}
		_, doc = b.get(link.AttrOr("href", ""))
		if got := doc.Find("#q").AttrOr("value", ""); got != want || doc.Find("td.c-add").Length() != 1 {
			t.Errorf("the suggestion searches for %q and finds %d offers", got, doc.Find("td.c-add").Length())
		}
	}
	if _, doc = b.get("/offers?q=h100"); doc.Find(".meant").Length() != 0 {
		t.Error("a query that matches gets a suggestion")
	}
}

func TestMarket_ExplainsTheFieldsOfAQuery(t *testing.T) {
	t.Parallel()
	b := open(t)
	_, doc := b.get("/offers?q=h100")
	if doc.Find(`[popovertarget="fields"]`).Length() == 0 {
		t.Error("nothing opens the list of fields")
	}
	row := doc.Find("#fields tbody tr").FilterFunction(func(_ int, s *goquery.Selection) bool {
		return s.Find("th").Text() == "vram_gb"
	})
	_, doc = b.get(row.Find("a").AttrOr("href", ""))
	if got := doc.Find("#q").AttrOr("value", ""); got != "h100 vram_gb >= 80" {
		t.Errorf("the example makes the query %q", got)
	}
}

// A search that finds nothing says which small changes would, and what they find.
func TestMarket_NearestSearches(t *testing.T) {
	t.Parallel()
	b := open(t)
	b.signUp()
	b.sell(4)
	_, doc := b.get("/offers?" + url.Values{"q": {"gpus_free>=16"}}.Encode())
	rows := doc.Find("#near tbody tr")
	if rows.Length() != 1 || !strings.Contains(rows.Text(), "gpus_free >= 4 instead of gpus_free >= 16") ||
		!strings.Contains(rows.Text(), "4 GPUs free on 1 host") || !strings.Contains(rows.Text(), "2.00") {
		t.Fatalf("near: %s", doc.Find("main").Text())
	}
	if _, doc = b.get(rows.Find("a").AttrOr("href", "")); doc.Find(".fold-offers tbody tr").Length() != 1 {
		t.Errorf("the nearest search finds %s", doc.Find("main").Text())
	}
	if _, doc = b.get("/offers"); doc.Find("#near").Length() != 0 {
		t.Error("a search that finds something has others near")
	}
}

// Below a short list of offers are templates that fill the form; a search that finds nothing, and a quote, have others.
func TestMarket_ShortListsHaveTemplatesBelow(t *testing.T) {
	t.Parallel()
	b := open(t)
	b.signUp()
	b.sell(4)
	_, doc := b.get("/offers")
	links := doc.Find("#ready li a")
	if links.Length() != 3 {
		t.Fatalf("%d templates: %s", links.Length(), doc.Find("main").Text())
	}
	links.Each(func(_ int, a *goquery.Selection) {
		_, filled := b.get(a.AttrOr("href", ""))
		if filled.Find("#image").AttrOr("value", "") == "" {
			t.Errorf("%s fills no form", a.AttrOr("href", ""))
		}
	})
	if _, doc = b.get("/offers?" + url.Values{"q": {"gpus_free>=16"}}.Encode()); doc.Find("#ready").Length() != 0 {
		t.Error("templates below a search that finds nothing")
	}
	b = open(t)
	b.signUp()
	for range 9 {
		b.sell(1)
	}
	if _, doc = b.get("/offers"); doc.Find("#ready").Length() != 0 ||
		doc.Find(".fold-offers tbody tr").Length() != 9 {
		t.Errorf("templates below %d offers", doc.Find(".fold-offers tbody tr").Length())
	}
}
