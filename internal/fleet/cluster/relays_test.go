package cluster

import (
	"slices"
	"testing"

	"github.com/musterhq/muster/internal/id"
)

// Clusters spread over the relays, and adding one moves few of them.
func TestRelaysSpread(t *testing.T) {
	t.Parallel()
	three, four := []string{"a:1", "b:1", "c:1"}, []string{"d:1", "c:1", "b:1", "a:1"}
	load := map[string]int{}
	moved := 0
	const clusters = 3000
	for range clusters {
		cl := id.New[id.Cluster]()
		before, after := relaysOf(three, cl), relaysOf(four, cl)
		if len(before) != relaysPerCluster || before[0] == before[1] {
			t.Fatalf("relays %v", before)
		}
		load[before[0]]++
		if before[0] != after[0] {
			moved++
			if after[0] != "d:1" {
				t.Fatalf("%v became %v", before, after)
			}
		}
	}
	for r, n := range load {
		if n < clusters/4 || n > clusters/2 {
			t.Errorf("%s is the first of %d of %d clusters", r, n, clusters)
		}
	}
	if moved > clusters/3 {
		t.Errorf("a fourth relay moved %d of %d", moved, clusters)
	}
	if got := relaysOf(nil, id.New[id.Cluster]()); len(got) != 0 {
		t.Errorf("of none: %v", got)
	}
	if !slices.Equal(three, []string{"a:1", "b:1", "c:1"}) {
		t.Error("the configuration was reordered")
	}
}
