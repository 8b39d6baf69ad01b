package link

import (
	"fmt"
	"slices"
	"testing"
)

// Hosts spread over the servers, and over the others when one is gone.
func TestSpread(t *testing.T) {
	t.Parallel()
	all := []string{"tls://a:4222", "tls://b:4222", "tls://c:4222"}
	first, second := map[string]int{}, map[string]int{}
	for i := range 3000 {
		host := fmt.Sprintf("host_%d", i)
		order := spread(all, host)
		if !slices.Equal(order, spread([]string{all[2], all[0], all[1]}, host)) {
			t.Fatalf("%s: the order depends on that of the list", host)
		}
		first[order[0]]++
		if order[0] == all[0] {
			second[order[1]]++
		}
	}
	for _, a := range all {
		if first[a] < 800 {
			t.Errorf("%d of 3000 hosts try %s first", first[a], a)
		}
	}
	if second[all[1]] < 300 || second[all[2]] < 300 {
		t.Errorf("the hosts of one server go to %v", second)
	}
}
