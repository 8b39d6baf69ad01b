package web

import (
	"encoding/json"
	"testing"
)

func TestDetailsOfTheTrailAreReadable(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ key, stored, want string }{
		{"amount", `"100.000000000"`, "100.00"},
		{"price_per_hour", `"19.200000"`, "19.20"},
		{"name", `"100.000000000"`, "100.000000000"}, // a name that looks like money is a name
		{"was_limit", `"0.000000000"`, "0.00"},
		{"fee_ppm", `150000`, "15 %"},
		{"fee_ppm", `12500`, "1.25 %"},
		{"percent", `5`, "5 %"},
		{"gpus_per_node", `4`, "4"},
		{"max_uses", `1000000`, "1000000"},
		{"notice_seconds", `3600`, "1 h 00 min"},
		{"scopes", `["read","clusters"]`, "read, clusters"},
		{"at", `"2026-11-22T07:31:47.123456Z"`, "2026-11-22 07:31:47"},
		{"stopped", `true`, "yes"},
		{"stopped", `false`, "no"},
		{"project", `""`, ""},
		{"limits", `{"cap":"5.000000000","gpus":2}`, "cap 5.00, GPUs 2"},
		{"nothing", `null`, ""},
	} {
		var v any
		if err := json.Unmarshal([]byte(c.stored), &v); err != nil {
			t.Fatal(err)
		}
		if got := detailText(c.key, v); got != c.want {
			t.Errorf("%s %s: %q, want %q", c.key, c.stored, got, c.want)
		}
	}
}
