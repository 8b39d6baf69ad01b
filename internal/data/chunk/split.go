package chunk

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"math"
)

// threshold ends a chunk at a byte with the probability 1/(AvgSize-MinSize), once the chunk has MinSize bytes.
const threshold = math.MaxUint64 / (AvgSize - MinSize)

// gear has a random number for each value of a byte. It never changes: other numbers would cut everywhere else.
var gear = func() (g [256]uint64) {
	x := uint64(0x6d7573746572) // splitmix64
	for i := range g {
		x += 0x9e3779b97f4a7c15
		z := x
		z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
		z = (z ^ z>>27) * 0x94d049bb133111eb
		g[i] = z ^ z>>31
	}
	return g
}()

// The zip rule: a chunk also ends before the header of a zip record, and after the header if the record is not
// compressed. torch.save writes a zip whose records carry the name of the file in their headers
// (step_1000/data/17), so that without the rule a new name changes a chunk of each tensor.
//
// A file of nothing but headers would become chunks of 30 bytes, so the rule has a budget: it makes no more than
// freeCuts cuts, and one for each bytesPerCut bytes of the file.
const (
	zipHeader   = 30      // bytes of a header before its name
	maxZipNames = 4 << 10 // name and extra field together have fewer bytes
	freeCuts    = 512
	bytesPerCut = 2 << 10
)

// MaxChunks returns the most chunks that a Splitter makes of n bytes: those that its content ends, those of the zip
// rule, and the last one.
func MaxChunks(n int64) int64 { return n/MinSize + freeCuts + n/bytesPerCut + 1 }

var zipMark = []byte("PK\x03\x04")

// A Splitter splits a stream into chunks.
type Splitter struct {
	r    io.Reader
	err  error // of r
	buf  []byte
	from int // buf[from:to] is read and not yet in a chunk
	to   int

	pos   int64 // of buf[from] in the stream
	clear int64 // no zip record begins in [pos+1, clear)
	cuts  int64 // made by the zip rule
}

// NewSplitter returns a Splitter that reads r. It holds 4 * MaxSize bytes.
func NewSplitter(r io.Reader) *Splitter {
	return &Splitter{r: r, buf: make([]byte, 4*MaxSize)}
}

// Next returns the next chunk, of 1 to MaxSize bytes, which is valid until the following call. The error is io.EOF
// after the last chunk, or the reader's own; then what was read since the last chunk is not returned.
func (s *Splitter) Next() ([]byte, error) {
	if err := s.fill(); err != nil {
		return nil, err
	}
	n := s.cut(s.buf[s.from:s.to])
	chunk := s.buf[s.from : s.from+n : s.from+n]
	s.from += n
	s.pos += int64(n)
	return chunk, nil
}

// fill reads until the buffer has all that cut looks at: the longest chunk and a mark that begins at its end.
func (s *Splitter) fill() error {
	need := MaxSize + len(zipMark)
	if s.to-s.from < need && s.err == nil {
		s.to = copy(s.buf, s.buf[s.from:s.to])
		s.from = 0
		var n int
		n, s.err = io.ReadAtLeast(s.r, s.buf[s.to:], need-s.to)
		s.to += n
		if errors.Is(s.err, io.ErrUnexpectedEOF) {
			s.err = io.EOF
		}
	}
	switch {
	case s.err != nil && !errors.Is(s.err, io.EOF):
		return s.err
	case s.from == s.to:
		return io.EOF
	}
	return nil
}

// cut returns the length of the chunk that p begins with.
func (s *Splitter) cut(p []byte) int {
	end := min(len(p), MaxSize)
	if s.cuts >= freeCuts+s.pos/bytesPerCut {
		return boundary(p[:end])
	}
	if n := storedHeader(p); n > 0 {
		s.cuts++
		return n
	}
	mark := s.mark(p, end)
	n := boundary(p[:mark])
	if n == mark && mark < end {
		s.cuts++
	}
	return n
}

// mark returns where in p[1:end] the next zip record begins, or end.
func (s *Splitter) mark(p []byte, end int) int {
	start := max(1, int(s.clear-s.pos))
	if start >= end {
		return end
	}
	i := bytes.Index(p[start:min(len(p), end+len(zipMark)-1)], zipMark)
	if i < 0 {
		s.clear = s.pos + int64(end)
		return end
	}
	s.clear = s.pos + int64(start+i)
	return start + i
}

// boundary returns the length of the chunk that p begins with, by its content alone.
func boundary(p []byte) int {
	if len(p) <= MinSize {
		return len(p)
	}
	// The hash of a byte depends on the 64 bytes that end with it.
	var h uint64
	for _, b := range p[MinSize-64 : MinSize] {
		h = h<<1 + gear[b]
	}
	for i, b := range p[MinSize:] {
		h = h<<1 + gear[b]
		if h <= threshold {
			return MinSize + i + 1
		}
	}
	return len(p)
}

// storedHeader returns the length of the header of an uncompressed zip record that p begins with, or 0.
func storedHeader(p []byte) int {
	if len(p) < zipHeader || !bytes.HasPrefix(p, zipMark) || binary.LittleEndian.Uint16(p[8:]) != 0 {
		return 0
	}
	names := int(binary.LittleEndian.Uint16(p[26:])) + int(binary.LittleEndian.Uint16(p[28:]))
	if names >= maxZipNames || zipHeader+names > len(p) {
		return 0
	}
	return zipHeader + names
}
