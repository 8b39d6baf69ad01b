package journal

import (
	"cmp"
	"slices"

	"github.com/musterhq/muster/internal/agentapi"
)

// record is the content of one frame: exactly one field is set. Replaying the records of a file in order restores the
// state that the process had when it wrote the last of them.
type record struct {
	Checkpoint *state              `json:"checkpoint,omitempty"` // the first record of every file
	Anchor     *agentapi.Anchor    `json:"anchor,omitempty"`
	Start      *startRecord        `json:"start,omitempty"`
	Ticks      []Tick              `json:"ticks,omitempty"`
	End        *endRecord          `json:"end,omitempty"`
	Segment    *agentapi.Segment   `json:"segment,omitempty"`
	Acks       []agentapi.UsageAck `json:"acks,omitempty"`
	Condition  *conditionRecord    `json:"condition,omitempty"`
}

type startRecord struct {
	agentapi.LeaseRef
	BootID   string           `json:"boot_id"`
	BootMS   int64            `json:"boot_ms"`
	Counters map[string]int64 `json:"counters,omitempty"`
}

type endRecord struct {
	runKey
	BootMS int64 `json:"boot_ms"`
}

// Tick records that a run was seen alive.
type Tick struct {
	agentapi.LeaseRef
	BootMS int64 `json:"boot_ms"`
	// Counters are the energy counters of the lease's GPUs in millijoules, by UUID; unknown ones are omitted.
	Counters map[string]int64 `json:"counters,omitempty"`
}

// runKey identifies what one sequence of segments belongs to.
type runKey struct {
	agentapi.LeaseRef
	BootID string `json:"boot_id"`
}

// run is a lease epoch within one boot.
type run struct {
	runKey
	StartBoot int64 `json:"start_boot"`
	TickBoot  int64 `json:"tick_boot"` // when it was last seen alive
	EndBoot   int64 `json:"end_boot"`  // valid if Ended
	Ended     bool  `json:"ended,omitempty"`
	Closed    bool  `json:"closed,omitempty"` // its final segment is written

	// These describe the last cut: the end of the last segment, if there is one (Seq > 0). Before the first segment,
	// Anchor is the newest anchor at the run's beginning.
	Seq     int64 `json:"seq"`
	CutBoot int64 `json:"cut_boot"`
	CutMS   int64 `json:"cut_ms"`
	Anchor  int64 `json:"anchor"`

	Energy    int64            `json:"energy"`     // energy since the run began, mJ
	EnergyCut int64            `json:"energy_cut"` // the part of it that segments already contain
	Counters  map[string]int64 `json:"counters,omitempty"`

	// These are the condition since the last cut; see Condition. A run from the journal of an earlier version counts as
	// up, with all peers audible.
	Down    bool                `json:"down,omitempty"`
	WasDown bool                `json:"was_down,omitempty"` // the run was down for part of the time since the last cut
	Tail    bool                `json:"tail,omitempty"`
	Deaf    []agentapi.DeafSpan `json:"deaf,omitempty"` // not signed yet; ToBootMS 0: the span continues
}

// state is what the journal knows. Its methods are pure: they use no clock and no file.
type state struct {
	Boot    string             `json:"boot"` // the running boot
	Runs    []*run             `json:"runs"`
	Anchors []agentapi.Anchor  `json:"anchors"` // by boot, then number
	Pending []agentapi.Segment `json:"pending"` // written but not acknowledged, oldest first
}

func (s *state) run(k runKey) *run {
	for _, r := range s.Runs {
		if r.runKey == k {
			return r
		}
	}
	return nil
}

// apply applies a record. The state changes in no other way.
func (s *state) apply(rec record) {
	switch {
	case rec.Checkpoint != nil:
		*s = *rec.Checkpoint
	case rec.Anchor != nil:
		s.addAnchor(*rec.Anchor)
	case rec.Start != nil:
		st := rec.Start
		s.Runs = append(s.Runs, &run{runKey: runKey{st.LeaseRef, st.BootID}, StartBoot: st.BootMS, TickBoot: st.BootMS,
			CutBoot: st.BootMS, Anchor: s.newestAnchor(st.BootID).Number, Counters: st.Counters})
	case rec.Ticks != nil:
		for _, t := range rec.Ticks {
			if r := s.run(runKey{t.LeaseRef, s.Boot}); r != nil {
				r.tick(t)
			}
		}
	case rec.End != nil:
		if r := s.run(rec.End.runKey); r != nil && !r.Ended {
			r.Ended, r.EndBoot = true, max(rec.End.BootMS, r.CutBoot)
		}
	case rec.Segment != nil:
		s.addSegment(*rec.Segment)
	case rec.Acks != nil:
		for _, a := range rec.Acks {
			s.ack(a)
		}
	case rec.Condition != nil:
		if r := s.run(rec.Condition.runKey); r != nil {
			r.take(*rec.Condition)
		}
	}
	s.forget()
}

func (s *state) addAnchor(a agentapi.Anchor) {
	i, found := slices.BinarySearchFunc(s.Anchors, a, func(x, y agentapi.Anchor) int {
		return cmp.Or(cmp.Compare(x.BootID, y.BootID), cmp.Compare(x.Number, y.Number))
	})
	if !found {
		s.Anchors = slices.Insert(s.Anchors, i, a)
	}
}

func (s *state) addSegment(seg agentapi.Segment) {
	s.Pending = append(s.Pending, seg)
	r := s.run(runKey{agentapi.LeaseRef{Lease: seg.Lease, Epoch: seg.Epoch}, seg.BootID})
	if r == nil || seg.Seq <= r.Seq {
		return // a replayed segment
	}
	r.Seq, r.CutBoot, r.CutMS, r.Anchor = seg.Seq, seg.BootEndMS, seg.EndMS, seg.Anchor
	r.EnergyCut += seg.EnergyMJ
	r.Closed = seg.Final
	r.signed(seg.BootEndMS)
}

func (s *state) ack(a agentapi.UsageAck) {
	s.Pending = slices.DeleteFunc(s.Pending, func(seg agentapi.Segment) bool {
		return seg.Lease == a.Lease && seg.Epoch == a.Epoch && seg.BootID == a.BootID && seg.Seq <= a.Through
	})
}

// forget drops runs that are closed with nothing pending, runs of an earlier boot that never had an anchor and so
// cannot be expressed on the server's clock, and anchors that no segment can refer to any more.
func (s *state) forget() {
	s.Runs = slices.DeleteFunc(s.Runs, func(r *run) bool {
		if r.Ended && r.BootID != s.Boot && s.newestAnchor(r.BootID).Number == 0 {
			return true
		}
		return r.Closed && !s.pendingOf(r.LeaseRef)
	})
	s.Anchors = slices.DeleteFunc(s.Anchors, func(a agentapi.Anchor) bool {
		newest := s.newestAnchor(a.BootID)
		if newest.Number == a.Number {
			return a.BootID != s.Boot && !slices.ContainsFunc(s.Runs, func(r *run) bool {
				return r.BootID == a.BootID &&
					!r.Closed
			})
		}
		return !slices.ContainsFunc(s.Runs, func(r *run) bool { return r.BootID == a.BootID && r.Anchor == a.Number })
	})
}

func (s *state) newestAnchor(boot string) (newest agentapi.Anchor) {
	for _, a := range s.Anchors {
		if a.BootID == boot {
			newest = a
		}
	}
	return newest
}

func (s *state) pendingOf(ref agentapi.LeaseRef) bool {
	return slices.ContainsFunc(s.Pending, func(seg agentapi.Segment) bool {
		return seg.Lease == ref.Lease && seg.Epoch == ref.Epoch
	})
}

// tick moves the time at which a run was last seen alive, and adds the energy used since the previous tick. A counter
// that decreased was reset: its present value was used since.
func (r *run) tick(t Tick) {
	if r.Ended || t.BootMS < r.TickBoot {
		return
	}
	r.TickBoot = t.BootMS
	for gpu, mj := range t.Counters {
		last, known := r.Counters[gpu]
		switch {
		case known && mj >= last:
			r.Energy += mj - last
		case known:
			r.Energy += mj
		}
		if r.Counters == nil {
			r.Counters = map[string]int64{}
		}
		r.Counters[gpu] = mj
	}
}
