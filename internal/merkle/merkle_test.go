package merkle

import (
	"crypto/sha256"
	"testing"
)

// Every leaf of every tree leads to the root by its path, and by no other's.
func TestPathsLeadToTheRoot(t *testing.T) {
	t.Parallel()
	for n := 1; n <= 33; n++ {
		leaves := make([][32]byte, n)
		for i := range leaves {
			leaves[i] = sha256.Sum256([]byte{0, byte(i)})
		}
		root := Root(leaves)
		leads := func(leaf [32]byte, i int, path [][]byte) bool {
			got, ok := RootOf(leaf, i, n, path)
			return ok && got == root
		}
		for i := range leaves {
			path := Path(leaves, i)
			if !leads(leaves[i], i, path) {
				t.Fatalf("leaf %d of %d does not lead to the root", i, n)
			}
			if n > 1 && leads(leaves[(i+1)%n], i, path) {
				t.Fatalf("another leaf passes for %d of %d", i, n)
			}
			if leads(leaves[i], i, append(path, make([]byte, 32))) || n > 1 && leads(leaves[i], i, path[1:]) ||
				leads(leaves[i], i+n, path) || leads(leaves[i], -1, path) {
				t.Fatalf("a path of the wrong length or place is taken for %d of %d", i, n)
			}
		}
	}
}
