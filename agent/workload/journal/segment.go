package journal

import "github.com/musterhq/muster/internal/agentapi"

// segmentMS is the length of a full segment on the server's clock, in milliseconds.
const segmentMS = 300_000

// began returns when a run began on the server's clock: by the anchor under which it began, because the server received
// that time and counts from it, or by a if that gives an earlier time.
func (r *run) began(anchors []agentapi.Anchor, a agentapi.Anchor) int64 {
	at := a.At(r.StartBoot)
	for _, first := range anchors {
		if first.BootID == r.BootID && first.Number == r.Anchor {
			at = min(at, first.At(r.StartBoot))
		}
	}
	return at
}

// next returns the unsigned segment that r should write now, or nil. nowBoot is how far the run is known to have
// lasted; cut asks for a segment now even if it is shorter than a full one. Calling next until it returns nil, and
// applying each segment, brings the run up to date whatever time has passed.
//
// It uses the newest anchor that keeps the segment's end after its start and its length within bounds, and never an
// older one than the last segment's. The last segment's anchor always fits, because both ends lie on its own line.
func (r *run) next(anchors []agentapi.Anchor, nowBoot int64, cut bool) *agentapi.Segment {
	if r.Closed {
		return nil
	}
	if r.Ended {
		nowBoot, cut = r.EndBoot, true
	}
	for i := len(anchors) - 1; i >= 0; i-- {
		a := anchors[i]
		if a.BootID != r.BootID || a.Number < r.Anchor {
			continue
		}
		seg := &agentapi.Segment{Lease: r.Lease, Epoch: r.Epoch, BootID: r.BootID, Seq: r.Seq + 1, Anchor: a.Number,
			StartMS: r.CutMS, BootEndMS: nowBoot, EnergyMJ: r.Energy - r.EnergyCut}
		if r.Seq == 0 {
			seg.StartMS = r.began(anchors, a)
		}
		seg.EndMS = a.At(nowBoot)
		switch length := seg.EndMS - seg.StartMS; {
		case length > segmentMS:
			// A long time passed unobserved: write full segments first. The last one gets the energy.
			seg.EndMS = seg.StartMS + segmentMS
			seg.BootEndMS = a.BootMS + seg.EndMS - a.ServerMS
			seg.EnergyMJ = 0
			if seg.BootEndMS <= r.CutBoot {
				continue // the anchor jumped ahead by more than a segment: stay on the older line
			}
			return seg
		case length == segmentMS, cut && length > 0:
			seg.Final = r.Ended
			return seg
		case length <= 0 && r.Ended && (a.Number == r.Anchor || r.Seq == 0):
			seg.EndMS = seg.StartMS // the run ended at its last cut
			seg.Final = true
			return seg
		case length <= 0:
			continue // the anchor jumped back: stay on the older line
		default:
			return nil
		}
	}
	return nil // no anchor yet
}
