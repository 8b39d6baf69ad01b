package query_test

import (
	"errors"
	"testing"

	"github.com/musterhq/muster/internal/fleet/market/query"
)

func TestParse_SuggestsTheFieldThatWasMeant(t *testing.T) {
	t.Parallel()
	for q, want := range map[string]string{
		"vramgb>=80":                   "vram_gb>=80",
		"h100 gpu_modle = H100 x":      "h100 gpu_model = H100 x",
		`region="ü" vram>=80`:          `region="ü" vram_gb>=80`,
		"ram>=80":                      "ram_gb>=80",
		"gpu_model=H100 AND nvlink=1":  "gpu_model=H100 nvlink=1",
		"colour=red":                   "",
		"provider=me":                  "",
		"gpu_model=H100 or vram_gb>=2": "",
		"vram_gb>=eighty":              "",
	} {
		_, err := query.Parse(q)
		var mistake *query.Error
		if !errors.As(err, &mistake) {
			t.Fatalf("%q: %v, want a query.Error", q, err)
		}
		if mistake.Fixed != want {
			t.Errorf("%q: %q, want %q", q, mistake.Fixed, want)
		}
	}
}

func TestFields_HaveExamplesThatParse(t *testing.T) {
	t.Parallel()
	for _, f := range query.Fields {
		q, err := query.Parse(f.Example)
		if err != nil || len(q.Terms()) != 1 || q.Terms()[0].Field.Name != f.Name || q.String() != f.Example {
			t.Errorf("%s: the example %q means %q (%v)", f.Name, f.Example, q, err)
		}
		if f.About == "" {
			t.Errorf("%s is not described", f.Name)
		}
	}
}
