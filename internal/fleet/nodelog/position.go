package nodelog

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// Position is a reader's position in the output of each rank. A reader can resume from it.
type Position map[int]mark

// mark is a position in the output of one rank: the run, the latest time in it, and the number of lines from the first
// line with that time to the position, inclusive. If a host's clock goes back during a run, the mark's time does not.
// Times of different runs are never compared.
type mark struct {
	epoch  int // 0 = nothing read; epochs start at 1
	timeMS int64
	lines  int
}

// Take moves the position past l. It must be called for a rank's lines in their order.
func (p Position) Take(l Line) {
	m := p[l.Rank]
	m.take(l)
	p[l.Rank] = m
}

// Clone returns an independent copy.
func (p Position) Clone() Position { return maps.Clone(p) }

func (m *mark) take(l Line) {
	if l.Epoch != m.epoch || l.TimeMS > m.timeMS {
		*m = mark{epoch: l.Epoch, timeMS: l.TimeMS}
	}
	m.lines++
}

// String returns rank.epoch.ms.lines of each rank, separated by commas. ParsePosition parses it.
func (p Position) String() string {
	var parts []string
	for _, rank := range slices.Sorted(maps.Keys(p)) {
		m := p[rank]
		parts = append(parts, fmt.Sprintf("%d.%d.%d.%d", rank, m.epoch, m.timeMS, m.lines))
	}
	return strings.Join(parts, ",")
}

// ParsePosition parses a position from a client. It ignores malformed parts.
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

// replay filters a rank's output that is read again from an earlier line: it passes only lines after the mark.
type replay struct {
	mark
	seen int  // number of lines since the first with the mark's time
	past bool // all further lines of this run are new
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
