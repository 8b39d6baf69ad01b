// Package chunk splits files into chunks, seals chunks for a store that does not have to be trusted, and groups them
// into packs.
//
// It is pure: no files, no network, no clock. Agents, the server and the command line use the same code, because all
// of them must find the same chunks in the same bytes.
//
// Invariants:
//   - The same bytes give the same chunks, in every version of this package: golden vectors hold the places of the
//     cuts.
//   - A chunk has at most [MaxSize] bytes.
//   - A chunk's [ID] is a keyed hash of its bytes. Without the key of a domain, a reader who has a file cannot check
//     whether the domain stores it.
//   - What is read from a store was written with the key of the domain, or it is refused with [ErrCorrupt].
//   - No parser takes more memory than a small multiple of its input or of MaxSize, whatever it reads.
package chunk

import "errors"

// Sizes of chunks in bytes. The average holds for data without structure.
const (
	MinSize = 64 << 10
	AvgSize = 256 << 10
	MaxSize = 1 << 20
)

// ErrCorrupt is the error of reading a blob or a pack that was changed, cut off, or sealed with another key.
var ErrCorrupt = errors.New("corrupt data or wrong key")
