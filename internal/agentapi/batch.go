package agentapi

import (
	"crypto/ed25519"
	"encoding/binary"
	"errors"

	"github.com/musterhq/muster/internal/merkle"
	"github.com/musterhq/muster/internal/signature"
)

// MinBatch is the smallest number of segments in a report whose list is signed as a whole: for fewer, the stored batch
// data would cost more than their signatures.
const MinBatch = 8

// InBatch locates a segment in a list that was signed as a whole: together with the list's signature it suffices to
// verify this segment without the others.
type InBatch struct {
	Size     int      `json:"size"`
	Position int      `json:"position"` // from 0
	Path     [][]byte `json:"path"`     // sibling hashes, from the segment up to the list's root
}

// BatchPayload returns the bytes that are signed for a list of segments: a domain string, the host, the number of
// segments, and the root of the tree over their hashes. The encoding of a list never changes.
func BatchPayload(host string, size int, root [32]byte) []byte {
	b := []byte("muster-segment-batch-v1\x00")
	b = binary.BigEndian.AppendUint32(b, uint32(len(host)))
	b = append(b, host...)
	b = binary.BigEndian.AppendUint64(b, uint64(size))
	return append(b, root[:]...)
}

// SignBatch signs a list of segments, in their order; it returns nil for fewer than MinBatch.
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

// VerifyInBatch verifies that Signature is of a list that contains the segment at the given place, and the parts of its
// shape that need no context.
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
