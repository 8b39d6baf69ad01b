package chunk

import (
	"bytes"
	"encoding/binary"
	"fmt"
)

// PackSize is the most bytes that a pack may have, its table included.
const PackSize = 16 << 20

// A pack in the store is
//
//	magic | blobs | sealed table | length of the sealed table (4 bytes, little endian) | magic
//
// and its table has an entry for each blob, in their order: id, offset, length. The table is sealed because the lengths
// of a file's chunks are nearly as good as its name.
const (
	packMagic   = "MSTRPCK1"
	entrySize   = 32 + 4 + 4
	maxEntries  = 16 << 10
	packTrailer = 4 + len(packMagic)
)

// An Entry says where in a pack the blob of a chunk is.
type Entry struct {
	ID     ID
	Offset uint32 // bytes from the start of the pack
	Length uint32 // bytes of the blob
}

// A Packer collects blobs into one pack. Its zero value is empty.
type Packer struct {
	data    []byte
	entries []Entry
}

// Fits reports whether a blob of n bytes can be added.
func (p *Packer) Fits(n int) bool {
	table := Overhead + (len(p.entries)+1)*entrySize
	return len(p.entries) < maxEntries && max(len(p.data), len(packMagic))+n+table+packTrailer <= PackSize
}

// Add adds the blob of a chunk and returns where it is. It fails if the blob does not fit.
func (p *Packer) Add(id ID, blob []byte) (Entry, error) {
	if !p.Fits(len(blob)) {
		return Entry{}, fmt.Errorf("a blob of %d bytes does not fit into the pack", len(blob))
	}
	if len(p.data) == 0 {
		p.data = append(p.data, packMagic...)
	}
	e := Entry{ID: id, Offset: uint32(len(p.data)), Length: uint32(len(blob))}
	p.data = append(p.data, blob...)
	p.entries = append(p.entries, e)
	return e, nil
}

// Len returns how many blobs were added.
func (p *Packer) Len() int { return len(p.entries) }

// Finish returns the pack and empties p. It fails if nothing was added.
func (p *Packer) Finish(k *Keys) ([]byte, error) {
	if len(p.entries) == 0 {
		return nil, fmt.Errorf("a pack without blobs")
	}
	table := make([]byte, 0, len(p.entries)*entrySize)
	for _, e := range p.entries {
		table = append(table, e.ID[:]...)
		table = binary.LittleEndian.AppendUint32(table, e.Offset)
		table = binary.LittleEndian.AppendUint32(table, e.Length)
	}
	aead, err := gcm(k.tables, nil)
	if err != nil {
		return nil, err
	}
	pack := p.data
	sealed := sealWith(aead, nil, flagRaw, table, []byte(packMagic))
	pack = append(pack, sealed...)
	pack = binary.LittleEndian.AppendUint32(pack, uint32(len(sealed)))
	pack = append(pack, packMagic...)
	*p = Packer{}
	return pack, nil
}

// Table returns the entries of a pack. It fails with ErrCorrupt unless they lie one after the other and fill the pack.
func (k *Keys) Table(pack []byte) ([]Entry, error) {
	if len(pack) > PackSize || len(pack) < len(packMagic)+Overhead+packTrailer ||
		!bytes.HasPrefix(pack, []byte(packMagic)) || !bytes.HasSuffix(pack, []byte(packMagic)) {
		return nil, ErrCorrupt
	}
	end := len(pack) - packTrailer
	n := int64(binary.LittleEndian.Uint32(pack[end:]))
	if n > Overhead+maxEntries*entrySize || n > int64(end-len(packMagic)) {
		return nil, ErrCorrupt
	}
	start := end - int(n)
	aead, err := gcm(k.tables, nil)
	if err != nil {
		return nil, err
	}
	_, table, err := openWith(aead, nil, pack[start:end], []byte(packMagic))
	if err != nil || len(table) == 0 || len(table)%entrySize != 0 {
		return nil, ErrCorrupt
	}
	entries := make([]Entry, 0, len(table)/entrySize)
	next := int64(len(packMagic))
	for ; len(table) > 0; table = table[entrySize:] {
		e := Entry{ID: ID(table[:32]), Offset: binary.LittleEndian.Uint32(table[32:]),
			Length: binary.LittleEndian.Uint32(table[36:])}
		if int64(e.Offset) != next || e.Length < Overhead {
			return nil, ErrCorrupt
		}
		next += int64(e.Length)
		entries = append(entries, e)
	}
	if next != int64(start) {
		return nil, ErrCorrupt
	}
	return entries, nil
}
