package evidence

import (
	"bytes"
	"testing"
	"time"
)

// Every leaf of every tree leads to the root by its path, and by no other's.
func TestPathsLeadToTheRoot(t *testing.T) {
	t.Parallel()
	for n := 1; n <= 33; n++ {
		leaves := make([][32]byte, n)
		for i := range leaves {
			leaves[i] = Tx{ID: "ltx", At: time.UnixMicro(int64(i))}.Hash()
		}
		root := Root(leaves)
		for i := range leaves {
			path := Path(leaves, i)
			if !bytes.Equal(rootOf(leaves[i], i, n, path), root) {
				t.Fatalf("leaf %d of %d does not lead to the root", i, n)
			}
			if n > 1 && bytes.Equal(rootOf(leaves[(i+1)%n], i, n, path), root) {
				t.Fatalf("another leaf passes for %d of %d", i, n)
			}
			if rootOf(leaves[i], i, n, append(path, make([]byte, 32))) != nil || n > 1 && rootOf(leaves[i], i, n, path[1:]) != nil {
				t.Fatalf("a path of the wrong length is taken for %d of %d", i, n)
			}
		}
	}
}
