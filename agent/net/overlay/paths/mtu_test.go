package paths

import (
	"fmt"
	"testing"
)

// The first size that is tried is the one that the path carries, whatever the frames are.
func TestSizes(t *testing.T) {
	t.Parallel()
	for room, want := range map[int][]int{
		65536 - 60: {8920, 1420, 1380, 1340},
		8896 - 60:  {8836, 1420, 1380, 1340},
		8244 - 60:  {8184, 1420, 1380, 1340},
		4092 - 60:  {4032, 1420, 1380, 1340},
		2044 - 60:  {1984, 1420, 1380, 1340},
		1500 - 80:  {1420, 1380, 1340},
		1400:       {1400, 1380, 1340},
		1300:       {1300},
		Base:       nil,
		0:          nil,
	} {
		if got := sizes(room); fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("room for %d: %v, want %v", room, got, want)
		}
	}
}
