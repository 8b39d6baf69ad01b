package journal

import (
	"slices"

	"github.com/musterhq/muster/internal/agentapi"
)

// Condition is what a run's host signs about it beyond the time.
type Condition struct {
	SeenBootMS int64 // the run was seen alive then, by CLOCK_BOOTTIME; 0: it was not seen
	Up         bool  // the rank is well
	Tail       bool  // the server has told the host to stop the run
	// Deaf are spans in which a peer was not heard; ToBootMS is 0 while one goes on. Spans that were noted before may be
	// repeated, and those that go on may be left out.
	Deaf []agentapi.DeafSpan
}

// conditionRecord is a Condition that counts from the run's last cut on, with all deaf spans that are not signed yet.
type conditionRecord struct {
	runKey
	Down bool                `json:"down,omitempty"`
	Tail bool                `json:"tail,omitempty"`
	Deaf []agentapi.DeafSpan `json:"deaf,omitempty"`
}

// Note takes the condition of a run. When it differs from the last one, the open segment is closed with the last one,
// at the moment at which the run was seen, so that the change is signed at once. A run that is unknown or has ended is
// ignored.
func (j *Journal) Note(ref agentapi.LeaseRef, c Condition) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	r := j.s.run(runKey{ref, j.cfg.BootID})
	if r == nil || r.Ended {
		return nil
	}
	deaf, heard := r.addDeafness(c.Deaf)
	if !heard && c.Up == !r.Down && c.Tail == r.Tail {
		return nil
	}
	if c.SeenBootMS > r.TickBoot {
		if err := j.append(record{Ticks: []Tick{{LeaseRef: ref, BootMS: c.SeenBootMS}}}); err != nil {
			return err
		}
	}
	if heard {
		if err := j.append(record{Condition: &conditionRecord{r.runKey, r.Down, r.Tail, deaf}}); err != nil {
			return err
		}
	}
	if err := j.write(&ref); err != nil {
		return err
	}
	return j.append(record{Condition: &conditionRecord{r.runKey, !c.Up, c.Tail, r.Deaf}})
}

// addDeafness adds deaf spans to those of the run, and reports whether they change anything.
func (r *run) addDeafness(in []agentapi.DeafSpan) (out []agentapi.DeafSpan, changed bool) {
	out = slices.Clone(r.Deaf)
	for _, d := range in {
		if d.ToBootMS != 0 && d.ToBootMS <= r.CutBoot {
			continue // signed before
		}
		i := slices.IndexFunc(out, func(o agentapi.DeafSpan) bool {
			return o.Rank == d.Rank && (d.ToBootMS == 0 || d.ToBootMS > o.FromBootMS) &&
				(o.ToBootMS == 0 || o.ToBootMS > d.FromBootMS)
		})
		switch {
		case i < 0:
			out, changed = append(out, d), true
		case out[i].ToBootMS == 0 && d.ToBootMS != 0:
			out[i].ToBootMS, changed = d.ToBootMS, true
		}
	}
	return out, changed
}

// take applies a record. Time before it that is in no segment yet keeps what was said of it: it was not up if any of it
// was not, and it is a tail only if all of it is.
func (r *run) take(c conditionRecord) {
	open := r.TickBoot > r.CutBoot
	r.WasDown = open && (r.WasDown || r.Down)
	r.Down, r.Deaf = c.Down, c.Deaf
	r.Tail = c.Tail
}

// noticedLate is by how much a deaf span may begin before its segment: silence is noticed late.
const noticedLate = agentapi.PeerSilenceMS + 1000

// facts are what a segment says that ends at the given moment of the boot's clock; nil: nothing beyond its time.
func (r *run) facts(end int64) *agentapi.Facts {
	f := agentapi.Facts{Up: !r.Down && !r.WasDown, Tail: r.Tail}
	for _, d := range r.Deaf {
		if d.ToBootMS == 0 || d.ToBootMS > end {
			d.ToBootMS = end
		}
		d.FromBootMS = max(d.FromBootMS, r.CutBoot-noticedLate)
		f.Deaf = append(f.Deaf, d)
	}
	if f.Deaf = agentapi.MergeDeaf(f.Deaf); f.Up && !f.Tail && len(f.Deaf) == 0 {
		return nil
	}
	return &f
}

// signed forgets what a segment has said that ends at the given moment.
func (r *run) signed(end int64) {
	r.WasDown = false
	r.Deaf = slices.DeleteFunc(slices.Clone(r.Deaf), func(d agentapi.DeafSpan) bool {
		return d.ToBootMS != 0 &&
			d.ToBootMS <= end
	})
	for i := range r.Deaf {
		r.Deaf[i].FromBootMS = max(r.Deaf[i].FromBootMS, end)
	}
}
