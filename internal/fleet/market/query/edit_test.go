package query_test

import (
	"testing"

	"github.com/musterhq/muster/internal/fleet/market/query"
)

func TestAQueryIsEditedByTerms(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ query, field, op, value, want string }{
		{"", "gpu_model", "=", "NVIDIA H100 80GB HBM3", `gpu_model = "NVIDIA H100 80GB HBM3"`},
		{"gpu_model=A100 vram_gb>=40", "gpu_model", "=", "H100", "gpu_model = H100 vram_gb >= 40"},
		{"vram_gb>=40 vram_gb>=80 vram_gb<100", "vram_gb", ">=", "24", "vram_gb >= 24 vram_gb < 100"},
		{"vram_gb>=40 region=eu", "vram_gb", ">=", "", "region = eu"},
		{"region in [a,b]", "region", "=", "c", "region in [a,b] region = c"},
		{"", "host_name", "=", `a "b" ] c`, `host_name = "a \"b\" ] c"`},
	} {
		q, err := query.Parse(c.query)
		if err != nil {
			t.Fatal(err)
		}
		edited, err := q.Set(c.field, c.op, c.value)
		if err != nil {
			t.Fatalf("%q: %v", c.query, err)
		}
		if edited.String() != c.want {
			t.Errorf("%q with %s%s%s is %q, want %q", c.query, c.field, c.op, c.value, edited, c.want)
		}
		if got := edited.Value(c.field, c.op); got != c.value {
			t.Errorf("%q: value %q, want %q", edited, got, c.value)
		}
		if again, err := query.Parse(edited.String()); err != nil || again.String() != edited.String() {
			t.Errorf("%q does not read back: %q, %v", edited, again, err)
		}
		if q.String() != mustQuery(t, c.query).String() {
			t.Errorf("%q was changed in place", c.query)
		}
	}
	if _, err := (query.Query{}).Set("vram_gb", ">=", "much"); err == nil {
		t.Error("a value of the wrong kind was taken")
	}
}

func mustQuery(t *testing.T, s string) query.Query {
	t.Helper()
	q, err := query.Parse(s)
	if err != nil {
		t.Fatal(err)
	}
	return q
}

func TestSetIn_ReplacesWhatNamedTheField(t *testing.T) {
	t.Parallel()
	for before, want := range map[string]string{
		"":                               `host_name in [a,"b c"]`,
		"host_name=z h100 host_name!=q":  `h100 host_name != q host_name in [a,"b c"]`,
		"host_name in [x,y] vram_gb>=80": `vram_gb >= 80 host_name in [a,"b c"]`,
	} {
		q, err := query.Parse(before)
		if err != nil {
			t.Fatal(err)
		}
		if q, err = q.SetIn("host_name", []string{"a", "b c"}); err != nil || q.String() != want {
			t.Errorf("%q becomes %q (%v), want %q", before, q, err, want)
		}
	}
}
