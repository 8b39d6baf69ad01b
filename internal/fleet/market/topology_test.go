package market

import (
	"encoding/json"
	"slices"
	"testing"
)

// boxOf8 is two boards of four NVLinked GPUs, each board of two pairs on one PCIe switch.
func boxOf8(t *testing.T, link func(i, j int) string) *Topology {
	t.Helper()
	m := make([][]string, 8)
	for i := range m {
		for j := range 8 {
			if i == j {
				m[i] = append(m[i], "X")
			} else {
				m[i] = append(m[i], link(i, j))
			}
		}
	}
	b, err := json.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return ParseTopology(b)
}

func indexes(gpus []GPU) []int {
	var out []int
	for _, g := range gpus {
		out = append(out, g.Index)
	}
	return out
}

func TestChooseTakesGPUsThatAreClose(t *testing.T) {
	t.Parallel()
	boards := boxOf8(t, func(i, j int) string {
		switch {
		case i/2 == j/2:
			return "NV4"
		case i/4 == j/4:
			return "PIX"
		}
		return "SYS"
	})
	switched := boxOf8(t, func(int, int) string { return "NV18" })
	for _, c := range []struct {
		name  string
		topo  *Topology
		taken []int
		count int
		want  []int
	}{
		{"pair", boards, nil, 2, []int{0, 1}},
		{"pair beside a broken pair", boards, []int{0}, 2, []int{2, 3}},
		{"one, where it breaks no pair", boards, []int{4}, 1, []int{5}},
		{"pair that leaves a whole board", boards, []int{0, 1}, 2, []int{2, 3}},
		{"board", boards, []int{1}, 4, []int{4, 5, 6, 7}},
		{"all that is left", boards, []int{0, 3}, 6, []int{1, 2, 4, 5, 6, 7}},
		{"all alike", switched, []int{2}, 3, []int{0, 1, 3}},
		{"not known", nil, []int{0}, 2, []int{1, 2}},
	} {
		h := newHost("h", "X", 8, 1)
		h.Topology = c.topo
		for _, i := range c.taken {
			h.GPUs[i].Free = false
		}
		if got := indexes(h.choose("X", c.count)); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

func TestChooseInALargeHost(t *testing.T) {
	t.Parallel()
	h := newHost("h", "X", 16, 1)
	m := make([][]string, 16)
	for i := range m {
		for j := range 16 {
			m[i] = append(m[i], map[bool]string{true: "NV2", false: "SYS"}[i/4 == j/4])
		}
	}
	b, err := json.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	h.Topology = ParseTopology(b)
	h.GPUs[1].Free = false
	if got := indexes(h.choose("X", 4)); !slices.Equal(got, []int{4, 5, 6, 7}) {
		t.Errorf("%v", got)
	}
}

func TestParseTopologyRefusesWhatIsNotSquare(t *testing.T) {
	t.Parallel()
	for _, s := range []string{"", "null", "{}", `[["X"]]`, `[["X","NV1"],["NV1"]]`, `[[],[]]`, `"x"`} {
		if ParseTopology([]byte(s)) != nil {
			t.Errorf("took %s", s)
		}
	}
}
