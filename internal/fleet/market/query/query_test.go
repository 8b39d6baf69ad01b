package query_test

import (
	"errors"
	"testing"

	"github.com/musterhq/muster/internal/fleet/market/query"
)

// row is an offer that has something of every field.
type row struct{}

func (row) Text(f *query.Field) string {
	switch f.Kind {
	case query.Version:
		return "12.4"
	case query.Set:
		return "runc runsc"
	}
	return "ams-r4"
}

func (row) Number(f *query.Field) (float64, bool) {
	if f.Kind == query.Bool {
		return 1, true
	}
	return 80, true
}

func (row) Words(*query.Field) []string { return query.Words("NVIDIA H100 80GB HBM3") }

func TestBadQueryNamesThePosition(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		query string
		pos   int
	}{
		{"gpu=H100", 1},
		{"gpu_model=H100 and vram_gb>=80", 16},
		{"gpu_model", 10},
		{"gpu_model ~ H100", 11},
		{"gpu_model=", 11},
		{"gpu_model=H100,A100", 15},
		{"gpu_model>H100", 10},
		{"region<=eu", 7},
		{"nvlink>=true", 7},
		{"nvlink=maybe", 8},
		{"vram_gb>=eighty", 10},
		{"vram_gb>=0x10", 10},
		{"vram_gb>=inf", 10},
		{"price_per_gpu_hour<1e3", 20},
		{"cuda_max>=twelve", 11},
		{"region in eu", 11},
		{"region in [", 12},
		{"region in []", 12},
		{"region in [a b]", 14},
		{"region in [a,]", 14},
		{"region in [a", 13},
		{`region="eu`, 8},
		{"ünï=1 gpu_model=H100", 1},
		{`region="ü" bogus=1`, 12},
		{`"gpu_model"=H100`, 1},
		{"h100=1", 1},
		{"h100 in [1]", 1},
		{"h100 gpu_model", 15},
		{"h100 ...", 6},
		{"vram_gb not in [1]", 9},
		{"gpu_model=...", 11},
		{"region==eu", 7},
	} {
		_, err := query.Parse(c.query)
		var qe *query.Error
		if !errors.As(err, &qe) {
			t.Errorf("%q: %v, want a query.Error", c.query, err)
		} else if qe.Pos != c.pos {
			t.Errorf("%q: %v, want position %d", c.query, err, c.pos)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{"gpu_model=H100 vram_gb>=80", `region in [a,"b c"] nvlink=true`, `host_name="\"x\\"`,
		"max_duration<1", "cuda_max notin [1.2]", "[", "'", "h100 80gb", `"gpu_model" "in" eu`} {
		f.Add(s)
	}
	offer := row{}
	f.Fuzz(func(t *testing.T, s string) {
		q, err := query.Parse(s)
		if err != nil {
			var qe *query.Error
			if !errors.As(err, &qe) || qe.Pos < 1 || qe.Pos > len(s)+1 {
				t.Fatalf("%q: %v", s, err)
			}
			return
		}
		again, err := query.Parse(q.String())
		if err != nil || again.String() != q.String() {
			t.Fatalf("%q reads back as %q: %v", q, again, err)
		}
		for i := range q.Terms() {
			if a, b := q.Terms()[i].Matches(offer), again.Terms()[i].Matches(offer); a != b {
				t.Fatalf("%q and %q differ", s, again)
			}
		}
	})
}

func TestBareWords(t *testing.T) {
	t.Parallel()
	for q, want := range map[string]bool{
		"h100": true, "H100 80gb": true, `"h100 80gb"`: true, "ams": true, "AMS-R4": true, "h100 vram_gb>=80": true,
		"a100": false, "h1": false, "h100 a100": false, `"80gb h100"`: false, "h100 vram_gb>80": false,
	} {
		p, err := query.Parse(q)
		if err != nil {
			t.Fatal(err)
		}
		got := true
		for i := range p.Terms() {
			got = got && p.Terms()[i].Matches(row{})
		}
		if got != want {
			t.Errorf("%s: %t, want %t", q, got, want)
		}
	}
}
