package agentapi

import (
	"crypto/ed25519"
	"encoding/binary"
	"errors"

	"github.com/musterhq/muster/internal/merkle"
	"github.com/musterhq/muster/internal/signature"
)

// MinBatch is from how many segments on a report's list is signed as a whole: what is kept of a batch costs more than
// the signatures of fewer.
const MinBatch = 8

// InBatch is where a segment is in a list that was signed as a whole: what it takes, beside the list's signature, to
// verify this one without the others.
type InBatch struct {
	Size     int      `json:"size"`
	Position int      `json:"position"` // from 0
	Path     [][]byte `json:"path"`     // sibling hashes, from the segment up to the list's root
}

// BatchPayload is what is signed of a list of segments: a domain string, the host, how many they are, and the root of
// the tree over their hashes. It is the same for the same list for ever.
func BatchPayload(host string, size int, root [32]byte) []byte {
	b := []byte("muster-segment-batch-v1\x00")
	b = binary.BigEndian.AppendUint32(b, uint32(len(host)))
	b = append(b, host...)
	b = binary.BigEndian.AppendUint64(b, uint64(size))
	return append(b, root[:]...)
}

// SignBatch signs a list of segments, in their order; nil when they are fewer than MinBatch.
func SignBatch(host string, segs []Segment, key ed25519.PrivateKey) []byte {
	if len(segs) < MinBatch {
		return nil
	}
	hashes := make([][32]byte, len(segs))
	for i := range segs {
		hashes[i] = segs[i].Hash(host)
	}
	return ed25519.Sign(key, BatchPayload(host, len(segs), merkle.Root(hashes)))
}

// VerifyInBatch checks that Signature is of a list that has the segment where in says, and the shape that needs no
// context.
func (s *Segment) VerifyInBatch(host string, key ed25519.PublicKey, in InBatch) error {
	root, ok := merkle.RootOf(s.Hash(host), in.Position, in.Size, in.Path)
	if !ok || !signature.Verify(signature.Signed{
		Key:       key,
		Message:   BatchPayload(host, in.Size, root),
		Signature: s.Signature,
	}) {
		return errors.New("bad signature")
	}
	return s.verifyFacts(host, key)
}
