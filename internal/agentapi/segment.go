package agentapi

import (
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/binary"
	"errors"

	"github.com/musterhq/muster/internal/signature"
)

// Segment is the agent's signed, immutable attestation that a lease epoch ran over an interval. It is at most 300 s
// long, and closed early at every transition; consecutive segments of one (lease, epoch, boot) abut and are numbered
// from 1.
type Segment struct {
	Lease     string `json:"lease"`
	Epoch     int    `json:"epoch"`
	BootID    string `json:"boot_id"`
	Seq       int64  `json:"seq"`
	Anchor    int64  `json:"anchor"`      // number of the anchor that maps BootEndMS to EndMS
	BootEndMS int64  `json:"boot_end_ms"` // CLOCK_BOOTTIME at the end
	StartMS   int64  `json:"start_ms"`    // the previous segment's EndMS, or the workload's start
	EndMS     int64  `json:"end_ms"`      // Anchor.At(BootEndMS), never before StartMS
	EnergyMJ  int64  `json:"energy_mj"`   // energy used by the lease's GPUs in the interval; 0 if unknown
	Final     bool   `json:"final"`       // no segment of this (lease, epoch) follows
	Signature []byte `json:"signature"`   // Ed25519 by the host's attestation key over Payload
	// Facts is what the host signs in addition to the time. Nil means that the rank was up, received data from every other
	// rank, and was not ordered to stop. Agents of protocol 1 never send it. A server of protocol 1 ignores it and uses
	// the signed time.
	Facts *Facts `json:"facts,omitempty"`
}

// MaxSegmentMS is the greatest length of a segment in milliseconds, with a margin for late timers.
const MaxSegmentMS = 305_000

// Payload returns the bytes that are signed: a domain string, then every field, with lengths before texts, big-endian.
// The encoding never changes, so that a bill can be verified years later.
func (s *Segment) Payload(host string) []byte {
	b := []byte("muster-segment-v1\x00")
	text := func(t string) {
		b = binary.BigEndian.AppendUint32(b, uint32(len(t)))
		b = append(b, t...)
	}
	num := func(n int64) { b = binary.BigEndian.AppendUint64(b, uint64(n)) }
	text(host)
	text(s.Lease)
	num(int64(s.Epoch))
	text(s.BootID)
	num(s.Seq)
	num(s.Anchor)
	num(s.BootEndMS)
	num(s.StartMS)
	num(s.EndMS)
	num(s.EnergyMJ)
	if s.Final {
		b = append(b, 1)
	} else {
		b = append(b, 0)
	}
	return b
}

// Hash returns the SHA-256 of the payload: two segments with one key and different hashes conflict.
func (s *Segment) Hash(host string) [32]byte { return sha256.Sum256(s.Payload(host)) }

// Sign sets Signature, and the signature of Facts if there are any.
func (s *Segment) Sign(host string, key ed25519.PrivateKey) {
	s.Signature = ed25519.Sign(key, s.Payload(host))
	if s.Facts != nil {
		s.Facts.Signature = ed25519.Sign(key, s.FactsPayload(host))
	}
}

// Verify verifies the signatures, and the parts of the shape that need no context.
func (s *Segment) Verify(host string, key ed25519.PublicKey) error {
	if !signature.Verify(signature.Signed{Key: key, Message: s.Payload(host), Signature: s.Signature}) {
		return errors.New("bad signature")
	}
	return s.verifyFacts(host, key)
}

// verifyFacts verifies the signature of Facts, and the parts of its shape that need no context.
func (s *Segment) verifyFacts(host string, key ed25519.PublicKey) error {
	if s.Facts != nil && !signature.Verify(signature.Signed{
		Key:       key,
		Message:   s.FactsPayload(host),
		Signature: s.Facts.Signature,
	}) {
		return errors.New("bad signature of the facts")
	}
	return s.CheckShape()
}

// CheckShape checks the parts of the shape that need no context.
func (s *Segment) CheckShape() error {
	switch {
	case s.EndMS < s.StartMS || (s.EndMS == s.StartMS && !s.Final):
		return errors.New("empty or backward interval")
	case s.EndMS-s.StartMS > MaxSegmentMS:
		return errors.New("longer than a segment may be")
	case s.Seq < 1 || s.Epoch < 1 || s.EnergyMJ < 0:
		return errors.New("numbers out of range")
	}
	return s.Facts.checkShape(s.BootEndMS)
}

// SegmentRef is the key of a segment.
type SegmentRef struct {
	LeaseRef
	BootID string `json:"boot_id"`
	Seq    int64  `json:"seq"`
}

// UsageAck allows the journal to remove one run's segments up to and including Through. Refused names those that will
// never be accepted, with the reason; the journal may remove them too, but the operator is notified.
type UsageAck struct {
	LeaseRef
	BootID  string `json:"boot_id"`
	Through int64  `json:"through"`
	Refused string `json:"refused,omitempty"`
}
