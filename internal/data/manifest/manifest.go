// Package manifest describes a tree of files as chunks: what a snapshot of a volume consists of.
//
// A directory is a list of entries, sorted by name. Its encoding is content like that of a file: chunks, which lie in
// packs of their own kind so that listing reads little. An entry of a directory has the references to the chunks of its
// content; one that has too many refers to chunks that list them. A snapshot is one reference, to its [Root].
//
// Like package chunk it is pure, and agents, the server and the command line use the same code.
//
// Invariants:
//   - One tree has one encoding: encoders sort, decoders refuse everything that an encoder would not write. Golden
//     vectors hold the encodings.
//   - The names that a decoder returns are safe to use as one element of a path: not empty, "." or "..", without "/"
//     and NUL. Everything else about them is the renter's business, also invalid UTF-8.
//   - Modes have permission and sticky bits only: setuid and setgid do not pass.
//   - No decoder takes more memory than a small multiple of what it has read, whatever its input claims. A [Reader]
//     limits the bytes and the entries of a directory, the number of its chunks, the depth of lists and the depth of
//     the tree. It reads a directory of any size with the memory of a few chunks ([Reader.Entries]).
//   - What a Reader reads is not much more than what it returns: chunks and lists that are smaller than a [Writer]
//     makes them are refused, except the last ones.
package manifest

import (
	"errors"

	"github.com/musterhq/muster/internal/data/chunk"
)

// ErrCorrupt is the error of decoding what no encoder writes.
var ErrCorrupt = errors.New("corrupt manifest")

// Limits of a tree.
const (
	MaxName     = 255      // bytes of a name
	MaxTarget   = 4095     // bytes of a symbolic link's target
	MaxXAttrs   = 64 << 10 // bytes of all extended attributes of an entry
	MaxRefs     = 1 << 10  // references in an entry; longer lists go into chunks
	MaxListRefs = 8 << 10  // references in a chunk that lists them
	MaxLists    = 3        // levels of chunks that list references
	MaxHoles    = 64 << 10 // holes of a file; the encoder of a file with more writes zeros
	MaxDirBytes = 64 << 20 // bytes of an encoded directory, about a million files
	MaxEntries  = 2 << 20  // entries of a directory
	MaxDepth    = 512      // directories in one path
)

// A Ref says where a chunk is. Its zero value refers to nothing.
type Ref struct {
	ID     chunk.ID
	Pack   int64  // number of the pack in the data domain, from 1
	Offset uint32 // of the blob in the pack
	Length uint32 // of the blob
	Size   uint32 // of the chunk
}

// Content is a sequence of bytes in chunks.
type Content struct {
	// Lists is how many levels of chunks lie between Refs and the data: 0 if Refs are the data's chunks, in their order,
	// else Refs are chunks that are decoded by [DecodeRefs].
	Lists int
	Refs  []Ref
}

// Kind is the kind of an entry. Devices, sockets and FIFOs are never part of a tree.
type Kind byte

// Kinds of entries.
const (
	File    Kind = 'f'
	Dir     Kind = 'd'
	Symlink Kind = 'l'
)

// An Entry is a file, a directory or a symbolic link.
type Entry struct {
	Name   string // "" for the root
	Kind   Kind
	Mode   uint32 // permission bits and the sticky bit, 0o1777
	UID    uint32
	GID    uint32
	MTime  int64    // nanoseconds since 1970
	XAttrs []XAttr  // sorted by name, only "user.…"
	Link   uint64   // files with the same number other than 0 are one file with several names; the number has no meaning
	Size   int64    // of a file in bytes, holes included; of a directory, the bytes of its encoding
	Holes  []Extent // of a file, sorted and not adjacent: the content is what lies outside them
	Body   Content  // of a file without its holes, or of a directory's encoding
	Target string   // of a symbolic link, as it is: it may point anywhere
}

// An XAttr is an extended attribute.
type XAttr struct {
	Name, Value string
}

// An Extent is a part of a file.
type Extent struct {
	Offset, Length int64
}

// A Root is what a snapshot refers to.
type Root struct {
	Dir          Entry // the tree; its name is empty
	Files        int64 // files and symbolic links
	Dirs         int64 // directories, without the root
	LogicalBytes int64 // bytes of the files without holes; a file with several names counts once
	LeftOut      int64 // devices, sockets and FIFOs that were left out
}
