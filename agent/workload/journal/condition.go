package journal

import (
	"slices"

	"github.com/musterhq/muster/internal/agentapi"
)

// Condition is what a run's host signs about the run in addition to its time.
type Condition struct {
	SeenBootMS int64 // when the run was seen alive, by CLOCK_BOOTTIME; 0: it was not
	Up         bool  // the rank is healthy
	Tail       bool  // the server has ordered the host to stop the run
	// Deaf lists spans in which nothing arrived from a peer; ToBootMS is 0 while a span continues. Spans that were
	// recorded before may be repeated, and those that continue may be omitted.
	Deaf []agentapi.DeafSpan
}

// conditionRecord is a Condition that applies from the run's last cut, with all deaf spans that are not signed yet.
type conditionRecord struct {
	runKey
	Down bool                `json:"down,omitempty"`
	Tail bool                `json:"tail,omitempty"`
	Deaf []agentapi.DeafSpan `json:"deaf,omitempty"`
}

// Note records the condition of a run. If it differs from the last one, Note closes the open segment with the last one,
// at the time at which the run was seen, so that the change is signed at once. Note ignores a run that is unknown or
// has ended.
func (j *Journal) Note(ref agentapi.LeaseRef, c Condition) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	r := j.s.run(runKey{ref, j.cfg.BootID})
	if r == nil || r.Ended {
		return nil
	}
	deaf, changed := r.addDeafness(c.Deaf)
	if !changed && c.Up == !r.Down && c.Tail == r.Tail {
		return nil
	}
	if c.SeenBootMS > r.TickBoot {
		if err := j.append(record{Ticks: []Tick{{LeaseRef: ref, BootMS: c.SeenBootMS}}}); err != nil {
			return err
		}
	}
	if changed {
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
			continue // already signed
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

// take applies a record. Earlier time that is in no segment yet keeps its condition: it was down if any part of it was
// down, and it is a tail only if all of it is.
func (r *run) take(c conditionRecord) {
	open := r.TickBoot > r.CutBoot
	r.WasDown = open && (r.WasDown || r.Down)
	r.Down, r.Deaf = c.Down, c.Deaf
	r.Tail = c.Tail
}

// noticedLate is how long before its segment a deaf span may begin, because silence is noticed only after a delay.
const noticedLate = agentapi.PeerSilenceMS + 1000

// facts returns what a segment states that ends at the given moment of the boot's clock; nil if it states only its
// time.
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

// signed drops what a segment that ends at the given moment has stated.
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
