package nodelog

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// Position is how far a reader is in the output of each rank. A reader that comes back goes on from there.
type Position map[int]mark

// mark is a place in the output of one rank: the run, the latest time it has shown, and how many lines there were since
// the first one of that time, that one included. A host's clock that goes back during a run does not move it back, and
// clocks of different runs are never compared.
type mark struct {
	epoch  int // 0 = nothing yet: epochs begin at 1
	timeMS int64
	lines  int
}

// Take notes that the reader has the line. Lines of a rank are to be taken in their order.
func (p Position) Take(l Line) {
	m := p[l.Rank]
	m.take(l)
	p[l.Rank] = m
}

// Clone is a copy that moves on by itself.
func (p Position) Clone() Position { return maps.Clone(p) }

func (m *mark) take(l Line) {
	if l.Epoch != m.epoch || l.TimeMS > m.timeMS {
		*m = mark{epoch: l.Epoch, timeMS: l.TimeMS}
	}
	m.lines++
}

// String is rank.epoch.ms.lines of every rank, by commas; ParsePosition reads it.
func (p Position) String() string {
	var parts []string
	for _, rank := range slices.Sorted(maps.Keys(p)) {
		m := p[rank]
		parts = append(parts, fmt.Sprintf("%d.%d.%d.%d", rank, m.epoch, m.timeMS, m.lines))
	}
	return strings.Join(parts, ",")
}

// ParsePosition reads what a reader sent; what is not of ours is no position.
func ParsePosition(text string) Position {
	p := Position{}
	for part := range strings.SplitSeq(text, ",") {
		n := strings.Split(part, ".")
		if len(n) != 4 {
			continue
		}
		rank, err1 := strconv.Atoi(n[0])
		epoch, err2 := strconv.Atoi(n[1])
		ms, err3 := strconv.ParseInt(n[2], 10, 64)
		lines, err4 := strconv.Atoi(n[3])
		if cmp.Or(err1, err2, err3, err4) == nil && epoch > 0 {
			p[rank] = mark{epoch, ms, lines}
		}
	}
	return p
}

// replay filters a rank's output that is read again from some way back: it lets pass what is beyond the mark.
type replay struct {
	mark
	seen int  // lines since the first of the mark's time
	past bool // all that follows in this run is new
}

func (r *replay) fresh(l Line) bool {
	switch {
	case l.Epoch != r.epoch:
		return l.Epoch > r.epoch
	case r.past:
		return true
	case l.TimeMS > r.timeMS:
		r.past = true
		return true
	case l.TimeMS < r.timeMS && r.seen == 0:
		return false
	}
	r.seen++
	r.past = r.seen > r.lines
	return r.past
}
