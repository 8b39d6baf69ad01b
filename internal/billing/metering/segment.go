package metering

import (
	"crypto/sha256"
	"encoding/json"
	"math"
	"strings"
	"unicode/utf8"

	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/id"
)

// Reasons for which a segment is refused forever. It is quarantined, the host's journal may delete it, and it is never
// billed.
const (
	refusedMalformed    = "malformed"      // numbers or texts out of range
	refusedSignature    = "bad_signature"  // not signed by this host's attestation key
	refusedForeign      = "foreign_lease"  // no lease of this host
	refusedAnchor       = "unknown_anchor" // names a time anchor that was never issued
	refusedClock        = "wrong_time"     // its end is not what its anchor makes of the boot clock
	refusedFuture       = "future"         // ends later than now
	refusedEpoch        = "unknown_epoch"  // of a start that never was
	refusedBefore       = "before_lease"   // starts before its lease
	refusedUnauthorised = "unauthorised"   // starts after the lease had to stop
	refusedConflict     = "conflict"       // same number, other content than the one accepted before
	refusedLate         = "too_late"       // its lease is settled
)

const (
	futureMS  = 2_000             // an end may be that much later than its receipt
	overrunMS = 60_000            // a run may start a segment that much after run_until while it stops; it is not billed
	maxEnergy = 1_000_000_000_000 // mJ in one segment: over 3 MW
	maxBootID = 100               // bytes
)

// received is one segment on its way in.
type received struct {
	agentapi.Segment
	host     id.Host
	lease    id.Lease // zero when it cannot be read
	hash     [32]byte
	anchor   agentapi.Anchor // that maps its boot's clock, once it is judged
	batch    *batch          // the list it was signed in; nil: it was signed alone
	position int             // in the batch
	refused  string          // why, "" = not so far
	known    bool            // accepted before with the same content
	waits    bool            // neither: to be sent again
}

// accepted reports whether r is stored by this transaction, once all is decided.
func (r *received) accepted() bool { return r.refused == "" && !r.known && !r.waits }

func (r *received) inRange() bool {
	return r.BootID != "" && len(r.BootID) <= maxBootID && utf8.ValidString(r.BootID) &&
		!strings.ContainsRune(r.BootID, 0) &&
		r.Epoch >= 1 && r.Epoch <= math.MaxInt32 && r.Seq >= 1 && r.StartMS >= 0 && r.EndMS >= r.StartMS &&
		r.EnergyMJ >= 0 && r.EnergyMJ <= maxEnergy && factsInRange(r.Facts)
}

// judge checks r against its lease (nil: none of this host) and its anchor (nil: none) at PostgreSQL's time now. The
// checks do not depend on what else has arrived, so order cannot change them.
func (r *received) judge(l *lease, anchor *agentapi.Anchor, now int64) string {
	switch {
	case l == nil:
		return refusedForeign
	case anchor == nil:
		return refusedAnchor
	case r.EndMS != max(anchor.At(r.BootEndMS), r.StartMS):
		return refusedClock
	case r.EndMS > now+futureMS:
		return refusedFuture
	case r.Epoch > int(l.Epoch):
		return refusedEpoch
	case r.StartMS < l.CreatedAt.UnixMilli()-futureMS:
		return refusedBefore
	case r.StartMS > l.runUntil()+overrunMS:
		return refusedUnauthorised
	case l.settled():
		return refusedLate
	}
	return ""
}

// key is what makes a segment one.
type segmentKey struct {
	lease id.Lease
	epoch int
	boot  string
	seq   int64
}

func (r *received) key() segmentKey { return segmentKey{r.lease, r.Epoch, r.BootID, r.Seq} }

// quarantined returns how a refused segment is kept: as it came.
func (r *received) quarantined() (payload []byte, hash [32]byte) {
	payload, _ = json.Marshal(r.Segment) // numbers, texts and bytes always marshal
	return payload, sha256.Sum256(payload)
}

// acks returns what the journal may delete. Agents send the oldest first and nothing newer before that was
// acknowledged, so the highest number that was processed stands for all before it; what must be sent again stops the
// acknowledgements of its run.
func acks(rs []*received) []agentapi.UsageAck {
	type runRef struct {
		agentapi.LeaseRef
		boot string
	}
	stop := map[runRef]int64{}
	of := func(r *received) runRef { return runRef{agentapi.LeaseRef{Lease: r.Lease, Epoch: r.Epoch}, r.BootID} }
	for _, r := range rs {
		if s, ok := stop[of(r)]; r.waits && (!ok || r.Seq < s) {
			stop[of(r)] = r.Seq
		}
	}
	var out []agentapi.UsageAck
	last := map[runRef]int{} // index in out of the run's acknowledgement
	for _, r := range rs {
		k := of(r)
		if s, ok := stop[k]; ok && r.Seq >= s {
			continue
		}
		if r.refused != "" {
			out = append(out, agentapi.UsageAck{LeaseRef: k.LeaseRef, BootID: k.boot, Through: r.Seq, Refused: r.refused})
			continue
		}
		if i, ok := last[k]; ok {
			out[i].Through = max(out[i].Through, r.Seq)
			continue
		}
		last[k] = len(out)
		out = append(out, agentapi.UsageAck{LeaseRef: k.LeaseRef, BootID: k.boot, Through: r.Seq})
	}
	return out
}
