package agentapi

import (
	"cmp"
	"encoding/binary"
	"errors"
	"slices"
)

// Facts is what a host signs about a segment in addition to its time. A segment without Facts was up.
type Facts struct {
	// Up reports that the rank was healthy throughout: its workload ran, its GPUs were healthy, its overlay and guest were
	// up.
	Up bool `json:"up"`
	// Tail reports that the segment's time is after the host was ordered to stop the run.
	Tail bool `json:"tail,omitempty"`
	// Deaf lists when nothing arrived from other ranks for longer than PeerSilenceMS: at most MaxDeafSpans spans, ordered
	// by rank and time, that do not overlap. Each begins with the last byte that arrived, or with the segment.
	Deaf []DeafSpan `json:"deaf,omitempty"`
	// Signature is Ed25519 by the host's attestation key over FactsPayload.
	Signature []byte `json:"signature"`
}

// DeafSpan is time in which nothing from one rank arrived at a host, by the CLOCK_BOOTTIME of the segment's boot.
type DeafSpan struct {
	Rank       int   `json:"rank"`
	FromBootMS int64 `json:"from_boot_ms"` // when the last byte arrived
	ToBootMS   int64 `json:"to_boot_ms"`   // when the first byte after it arrived, or the segment's end
}

// MaxDeafSpans is the greatest number of deaf spans in one segment.
const MaxDeafSpans = 64

// FactsPayload returns the bytes that are signed for Facts: a domain string, the segment's payload, and every field,
// big-endian. The encoding never changes. Facts must not be nil.
func (s *Segment) FactsPayload(host string) []byte {
	b := []byte("muster-segment-facts-v1\x00")
	segment := s.Payload(host)
	b = binary.BigEndian.AppendUint32(b, uint32(len(segment)))
	b = append(b, segment...)
	for _, flag := range []bool{s.Facts.Up, s.Facts.Tail} {
		if flag {
			b = append(b, 1)
		} else {
			b = append(b, 0)
		}
	}
	b = binary.BigEndian.AppendUint32(b, uint32(len(s.Facts.Deaf)))
	for _, d := range s.Facts.Deaf {
		for _, n := range []int64{int64(d.Rank), d.FromBootMS, d.ToBootMS} {
			b = binary.BigEndian.AppendUint64(b, uint64(n))
		}
	}
	return b
}

// WasUp reports whether the segment states that the rank was up.
func (s *Segment) WasUp() bool { return s.Facts == nil || s.Facts.Up }

// checkShape checks what needs no context. end is the segment's end by the boot's clock.
func (f *Facts) checkShape(end int64) error {
	if f == nil {
		return nil
	}
	if len(f.Deaf) > MaxDeafSpans {
		return errors.New("too many deaf spans")
	}
	for i, d := range f.Deaf {
		switch {
		case d.Rank < 0 || d.FromBootMS < 0 || d.ToBootMS <= d.FromBootMS || d.ToBootMS > end:
			return errors.New("a deaf span is out of range")
		case i > 0 && (f.Deaf[i-1].Rank > d.Rank || f.Deaf[i-1].Rank == d.Rank && f.Deaf[i-1].ToBootMS >= d.FromBootMS):
			return errors.New("deaf spans are not in order, or overlap")
		}
	}
	return nil
}

// MergeDeaf returns the spans in the order of Facts.Deaf, without overlaps and empty spans. If more than MaxDeafSpans
// remain, it keeps the longest.
func MergeDeaf(in []DeafSpan) []DeafSpan {
	in = slices.Clone(in)
	slices.SortFunc(in, func(a, b DeafSpan) int {
		return cmp.Or(cmp.Compare(a.Rank, b.Rank), cmp.Compare(a.FromBootMS, b.FromBootMS))
	})
	var out []DeafSpan
	for _, d := range in {
		last := len(out) - 1
		switch {
		case d.ToBootMS <= d.FromBootMS:
		case last >= 0 && out[last].Rank == d.Rank && out[last].ToBootMS >= d.FromBootMS:
			out[last].ToBootMS = max(out[last].ToBootMS, d.ToBootMS)
		default:
			out = append(out, d)
		}
	}
	if len(out) > MaxDeafSpans {
		byLength := slices.SortedFunc(slices.Values(out), func(a, b DeafSpan) int {
			return cmp.Compare(b.ToBootMS-b.FromBootMS, a.ToBootMS-a.FromBootMS)
		})
		out = slices.DeleteFunc(out, func(d DeafSpan) bool { return !slices.Contains(byLength[:MaxDeafSpans], d) })
	}
	return out
}
