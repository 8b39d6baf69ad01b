package journal

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
)

// A frame is length | CRC32C of the payload | payload; both numbers are big-endian and have 32 bits.
const (
	frameHeader = 8
	maxPayload  = 16 << 20 // enough for a checkpoint after a very long outage; anything longer is damage
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// errTorn is returned for bytes that do not hold a complete, undamaged frame.
var errTorn = errors.New("torn frame")

func appendFrame(b, payload []byte) []byte {
	b = binary.BigEndian.AppendUint32(b, uint32(len(payload)))
	b = binary.BigEndian.AppendUint32(b, crc32.Checksum(payload, castagnoli))
	return append(b, payload...)
}

// nextFrame returns the payload of the first frame and the bytes after it, or errTorn. An empty b is torn too: callers
// check len(b) first.
func nextFrame(b []byte) (payload, rest []byte, err error) {
	if len(b) < frameHeader {
		return nil, b, errTorn
	}
	n := int64(binary.BigEndian.Uint32(b))
	if n == 0 || n > maxPayload || int64(len(b)-frameHeader) < n {
		return nil, b, errTorn
	}
	payload, rest = b[frameHeader:frameHeader+n], b[frameHeader+n:]
	if crc32.Checksum(payload, castagnoli) != binary.BigEndian.Uint32(b[4:]) {
		return nil, b, errTorn
	}
	return payload, rest, nil
}
