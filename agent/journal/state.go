package journal

import (
	"cmp"
	"slices"

	"github.com/musterhq/muster/internal/agentapi"
)

// record is one frame's content: exactly one field is set. Replaying the records of a file in order gives the state
// that the process had when it wrote the last of them.
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

// Tick says that a run was seen alive.
type Tick struct {
	agentapi.LeaseRef
	BootMS int64 `json:"boot_ms"`
	// Counters are the energy counters of the lease's GPUs in millijoules, by UUID; those not known are left out.
	Counters map[string]int64 `json:"counters,omitempty"`
}

// runKey names what one sequence of segments belongs to.
type runKey struct {
	agentapi.LeaseRef
	BootID string `json:"boot_id"`
}

// run is a lease epoch within one boot.
type run struct {
	runKey
	StartBoot int64 `json:"start_boot"`
	TickBoot  int64 `json:"tick_boot"` // last seen alive
	EndBoot   int64 `json:"end_boot"`  // valid when Ended
	Ended     bool  `json:"ended,omitempty"`
	Closed    bool  `json:"closed,omitempty"` // its final segment is written

	// The last cut: the end of the last segment, once there is one (Seq > 0). Before, Anchor is the newest when it began.
	Seq     int64 `json:"seq"`
	CutBoot int64 `json:"cut_boot"`
	CutMS   int64 `json:"cut_ms"`
	Anchor  int64 `json:"anchor"`

	Energy    int64            `json:"energy"`     // mJ since the run began
	EnergyCut int64            `json:"energy_cut"` // of it, already in segments
	Counters  map[string]int64 `json:"counters,omitempty"`

	// The condition since the last cut, see Condition. A run of an earlier version's journal was up and heard everybody.
	Down    bool                `json:"down,omitempty"`
	WasDown bool                `json:"was_down,omitempty"` // some of the time since the last cut was down
	Tail    bool                `json:"tail,omitempty"`
	Deaf    []agentapi.DeafSpan `json:"deaf,omitempty"` // not signed yet; ToBootMS 0: it goes on
}

// state is what the journal knows. Its methods are pure: no clock, no file.
type state struct {
	Boot    string             `json:"boot"` // the running boot
	Runs    []*run             `json:"runs"`
	Anchors []agentapi.Anchor  `json:"anchors"` // by boot, then number
	Pending []agentapi.Segment `json:"pending"` // written and not acknowledged, oldest first
}

func (s *state) run(k runKey) *run {
	for _, r := range s.Runs {
		if r.runKey == k {
			return r
		}
	}
	return nil
}

// apply is the only way the state changes.
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
		return // a replayed one
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

// forget drops runs that are closed with nothing pending, runs of an earlier boot that never had an anchor and so can
// never be told on the server's clock, and anchors that no segment can name any more.
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

// tick moves a run's last sign of life, and adds the energy used since the one before. A counter that went down was
// reset: what it shows now was used since.
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
