package cli

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/id"
)

// muster cluster show prints what is mounted by name, with how durable it is; deleted volumes are shown by their ids.
func TestShowPrintsMounts(t *testing.T) {
	t.Parallel()
	p := newPlatform(t)
	p.signUp("op@example.com")
	p.sell(8, "2.00")
	p.signUp("ada@example.com")
	p.ok("billing", "topup", "50")
	p.ok("cluster", "create", "--name", "train", "--gpus", "4", "--image", "registry.test/job:1")
	if out := p.ok("cluster", "show", "train"); strings.Contains(out, "MOUNTED AT") {
		t.Errorf("without mounts:\n%s", out)
	}

	v := p.json("volume", "create", "training-data", "--size", "10GB")["id"].(string)
	gone := id.New[id.Volume]()
	of, err := id.Parse[id.Volume](v)
	if err != nil {
		t.Fatal(err)
	}
	mounts, err := json.Marshal([]client.Mount{
		{Path: "/data", Volume: of, Mode: "ranks"},
		{Path: "/model", Volume: gone, Mode: "ro", Lazy: true, CacheGB: 50},
		{Path: "/shared", Shared: "lab-nfs", Mode: "rw"},
	})
	if err != nil {
		t.Fatal(err)
	}
	// The hosts of this test have no scratch and no shared file system, so the mounts are put into the spec here.
	if _, err := p.db.Pool.Exec(t.Context(), "UPDATE cluster SET spec = jsonb_set(spec, '{mounts}', $1)",
		string(mounts)); err != nil {
		t.Fatal(err)
	}
	out := p.ok("cluster", "show", "train")
	for _, want := range [][]string{
		{"/data", "training-data", "ranks", "no snapshot"},
		{"/model", gone.String(), "ro, lazy, 50 GB of cache", "deleted"},
		{"/shared", "shared:lab-nfs", "rw", "what its server has stored"},
	} {
		if !hasLine(out, want) {
			t.Errorf("no line with %q in\n%s", want, out)
		}
	}
}

// hasLine reports whether a line has all the words, in their order.
func hasLine(out string, words []string) bool {
	for line := range strings.Lines(out) {
		rest, found := line, true
		for _, w := range words {
			var ok bool
			_, rest, ok = strings.Cut(rest, w)
			found = found && ok
		}
		if found {
			return true
		}
	}
	return false
}
