package metering

import (
	"encoding/json"
	"fmt"
	"math"

	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/billing/fairness"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/signature"
)

// noticedLate is by how many milliseconds a deaf span may begin before the segment that reports it: silence is noticed
// late.
var noticedLate = (fairness.PeerSilence + fairness.ClockSlack).Milliseconds()

// checkFacts refuses segments whose facts are not signed by a key of their host. Segments that are refused already are
// left out.
func checkFacts(rs []*received, keys map[id.Host][][]byte) {
	var asked []*received
	var signed []signature.Signed
	for _, r := range rs {
		if r.refused == "" && r.Facts != nil {
			asked = append(asked, r)
			signed = append(signed, signature.Signed{
				Key:       keys[r.host][0],
				Message:   r.FactsPayload(r.host.String()),
				Signature: r.Facts.Signature,
			})
		}
	}
	for i, valid := range signature.VerifyAll(signed) {
		if !valid && !signedByAny(signed[i], keys[asked[i].host][1:]) {
			asked[i].refused = refusedSignature
		}
	}
}

// factsInRange checks what the database could not hold.
func factsInRange(f *agentapi.Facts) bool {
	if f == nil {
		return true
	}
	for _, d := range f.Deaf {
		if d.Rank < 0 || d.Rank > math.MaxInt32 {
			return false
		}
	}
	return len(f.Deaf) <= agentapi.MaxDeafSpans
}

// deafSpans returns the spans of a segment by PostgreSQL's clock, through the segment's anchor, within the segment. A
// span may begin earlier by noticedLate.
func deafSpans(s agentapi.Segment, a agentapi.Anchor) (ranks []int, spans []Interval) {
	if s.Facts == nil {
		return nil, nil
	}
	for _, d := range s.Facts.Deaf {
		i := Interval{
			Start: a.At(d.FromBootMS),
			End:   a.At(d.ToBootMS),
		}.And(Interval{Start: max(0, s.StartMS-noticedLate), End: s.EndMS})
		if i.Len() > 0 {
			ranks, spans = append(ranks, d.Rank), append(spans, i)
		}
	}
	return ranks, spans
}

// factsJSON returns how a segment's facts are kept, with their signature; "" without facts.
func factsJSON(f *agentapi.Facts) (string, error) {
	if f == nil {
		return "", nil
	}
	b, err := json.Marshal(f)
	if err != nil {
		return "", fmt.Errorf("encode facts: %w", err)
	}
	return string(b), nil
}

// factsOf reads what factsJSON wrote.
func factsOf(b []byte) (*agentapi.Facts, error) {
	if len(b) == 0 {
		return nil, nil
	}
	var f agentapi.Facts
	if err := json.Unmarshal(b, &f); err != nil {
		return nil, fmt.Errorf("decode facts: %w", err)
	}
	return &f, nil
}
