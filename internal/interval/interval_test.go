package interval

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestSets(t *testing.T) {
	t.Parallel()
	a := Of(Span{30, 40}, Span{0, 10}, Span{10, 20}, Span{5, 5}, Span{9, 3})
	b := Of(Span{15, 35}, Span{50, 60})
	for name, c := range map[string]struct{ got, want Set }{
		"of":        {a, Set{{0, 20}, {30, 40}}},
		"union":     {a.Union(b), Set{{0, 40}, {50, 60}}},
		"intersect": {a.Intersect(b), Set{{15, 20}, {30, 35}}},
		"minus":     {a.Minus(b), Set{{0, 15}, {35, 40}}},
		"nothing":   {a.Minus(a), nil},
		"clip":      {a.Clip(Span{19, 31}), Set{{19, 20}, {30, 31}}},
		"flat":      {FromFlat(append(a.Flat(), 7)), a},
	} {
		if diff := cmp.Diff(c.want, c.got); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

// TestSetsAgreeWithBits compares every operation with the same operation on single milliseconds.
func TestSetsAgreeWithBits(t *testing.T) {
	t.Parallel()
	const horizon = 40
	rnd := rand.New(rand.NewPCG(1, 2))
	draw := func() (s Set, bits [horizon]bool) {
		in := make([]Span, rnd.IntN(5))
		for k := range in {
			in[k] = Span{rnd.Int64N(horizon), rnd.Int64N(horizon)}
			for ms := in[k].Start; ms < in[k].End; ms++ {
				bits[ms] = true
			}
		}
		return Of(in...), bits
	}
	for range 5000 {
		s, a := draw()
		u, b := draw()
		before := slices.Clone(s)
		for name, c := range map[string]struct {
			got  Set
			want func(x, y bool) bool
		}{
			"union":     {s.Union(u), func(x, y bool) bool { return x || y }},
			"intersect": {s.Intersect(u), func(x, y bool) bool { return x && y }},
			"minus":     {s.Minus(u), func(x, y bool) bool { return x && !y }},
		} {
			n := int64(0)
			for ms := range int64(horizon) {
				want := c.want(a[ms], b[ms])
				if want {
					n++
				}
				if c.got.Contains(ms) != want {
					t.Fatalf("%s of %v and %v at %d: %v", name, s, u, ms, c.got)
				}
			}
			for k, i := range c.got {
				if i.Len() <= 0 || k > 0 && i.Start <= c.got[k-1].End {
					t.Fatalf("%s of %v and %v is not in order: %v", name, s, u, c.got)
				}
			}
			if c.got.Len() != n {
				t.Fatalf("%s of %v and %v: %d ms, want %d", name, s, u, c.got.Len(), n)
			}
		}
		if !slices.Equal(before, s) {
			t.Fatal("an operation changed its argument")
		}
	}
}
