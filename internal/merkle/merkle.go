// Package merkle computes one hash of a list of hashes, and proves that a hash is in the list without revealing the
// others.
//
// The tree is that of RFC 6962, except that an odd hash at the end of a level moves up unchanged (the root is the
// same). A node's preimage begins with the byte 1; callers that hash leaves must begin theirs with another byte, so
// that neither can pass for the other. The computation never changes: bills are verified with it years later.
package merkle

import "crypto/sha256"

// node is the parent of two hashes.
func node(left, right [32]byte) [32]byte {
	var b [65]byte
	b[0] = 1
	copy(b[1:], left[:])
	copy(b[33:], right[:])
	return sha256.Sum256(b[:])
}

// up returns the level above: pairs are joined, and an odd hash at the end moves up unchanged.
func up(level [][32]byte) [][32]byte {
	out := make([][32]byte, 0, (len(level)+1)/2)
	for i := 0; i < len(level); i += 2 {
		if i+1 < len(level) {
			out = append(out, node(level[i], level[i+1]))
		} else {
			out = append(out, level[i])
		}
	}
	return out
}

// Root is the root over leaves, at least one.
func Root(leaves [][32]byte) [32]byte {
	for len(leaves) > 1 {
		leaves = up(leaves)
	}
	return leaves[0]
}

// Path returns the sibling hashes on the way from leaf i to the root.
func Path(leaves [][32]byte, i int) (path [][]byte) {
	for ; len(leaves) > 1; leaves, i = up(leaves), i/2 {
		if j := i ^ 1; j < len(leaves) {
			path = append(path, leaves[j][:])
		}
	}
	return path
}

// RootOf computes the root from leaf i of n and its path; ok is false if there is no such leaf or the path has the
// wrong length.
func RootOf(leaf [32]byte, i, n int, path [][]byte) ([32]byte, bool) {
	if i < 0 || i >= n {
		return leaf, false
	}
	for ; n > 1; i, n = i/2, (n+1)/2 {
		if i^1 >= n {
			continue
		}
		if len(path) == 0 || len(path[0]) != 32 {
			return leaf, false
		}
		side := [32]byte(path[0])
		path = path[1:]
		if i%2 == 0 {
			leaf = node(leaf, side)
		} else {
			leaf = node(side, leaf)
		}
	}
	return leaf, len(path) == 0
}
