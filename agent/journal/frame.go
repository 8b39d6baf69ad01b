package journal

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
)

// A frame is length | CRC32C of the payload | payload, both numbers big endian and 32 bits.
const (
	frameHeader = 8
	maxPayload  = 16 << 20 // a checkpoint of a very long outage; anything longer is damage
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// errTorn says that the bytes do not hold a whole, undamaged frame.
var errTorn = errors.New("torn frame")

func appendFrame(b, payload []byte) []byte {
	b = binary.BigEndian.AppendUint32(b, uint32(len(payload)))
	b = binary.BigEndian.AppendUint32(b, crc32.Checksum(payload, castagnoli))
	return append(b, payload...)
}

// nextFrame returns the first frame's payload and what follows it, or errTorn. An empty b has no frame and is torn
// too: the caller looks at len(b) first.
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
