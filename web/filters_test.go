package web_test

import (
	"net/url"
	"testing"
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
