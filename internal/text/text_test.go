package text_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/musterhq/muster/internal/text"
)

func TestClip(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		in   string
		n    int
		want string
	}{
		{"abc", 3, "abc"}, {"abcd", 3, "abc"}, {"", 0, ""}, {"é", 1, ""}, {"aé", 2, "a"}, {"aé", 3, "aé"},
		{strings.Repeat("a", 299) + "é", 300, strings.Repeat("a", 299)}, // a user agent that made sign-in fail
		{"\xff", 10, "\uFFFD"}, {"a\x00b", 10, "ab"}, {"\xc3", 1, ""},
	} {
		got := text.Clip(tc.in, tc.n)
		if got != tc.want {
			t.Errorf("Clip(%q, %d) = %q, want %q", tc.in, tc.n, got, tc.want)
		}
	}
	if got := text.Ellipsis("aéb", 2); got != "a…" {
		t.Errorf("%q", got)
	}
	if got := text.Ellipsis("aé", 3); got != "aé" {
		t.Errorf("%q", got)
	}
}

func TestOneLine(t *testing.T) {
	t.Parallel()
	if got := text.OneLine("H100\x1b[31m\r\u202EX\u0085é"); got != "H100 [31m  X é" {
		t.Errorf("%q", got)
	}
}

func TestWithoutNUL_ReachesEveryText(t *testing.T) {
	t.Parallel()
	type inner struct{ S []string }
	v := struct {
		S string
		P *inner
		M map[string]*inner
		B []byte
	}{"a\x00b", &inner{[]string{"\x00", "c"}}, map[string]*inner{"k\x00": {[]string{"\x00d"}}}, []byte{0}}
	text.WithoutNUL(&v)
	if v.S != "ab" || v.P.S[0] != "" || v.P.S[1] != "c" || v.M["k"] == nil || v.M["k"].S[0] != "d" || len(v.B) != 1 {
		t.Errorf("%+v", v)
	}
}

func FuzzClip(f *testing.F) {
	f.Add("a\x00é\xff", 3)
	f.Fuzz(func(t *testing.T, s string, n int) {
		n = max(0, n%64)
		got := text.Clip(s, n)
		if len(got) > n || !utf8.ValidString(got) || strings.IndexByte(got, 0) >= 0 {
			t.Errorf("Clip(%q, %d) = %q", s, n, got)
		}
	})
}

func TestNearest(t *testing.T) {
	t.Parallel()
	words := []string{"gpu_model", "gpus_per_node", "gpu", "image", "nodes", "name", "vram_gb"}
	for word, want := range map[string]string{
		"gpu_modle": "gpu_model", "gpus_per_nodes": "gpus_per_node", "Imgae": "image", "vram": "", "node": "nodes", "x": "",
		"": "", "image": "image", "nam": "name", "colour": "",
	} {
		if got := text.Nearest(word, words); got != want {
			t.Errorf("%q: %q, want %q", word, got, want)
		}
	}
}
