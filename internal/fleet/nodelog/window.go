package nodelog

// window keeps the last lines that were added: at most maxLines (negative = no limit) and about maxBytes.
type window struct {
	maxLines, maxBytes int

	kept  []Line
	first int // index of the oldest line in kept
	bytes int
	count int  // number of lines added
	cut   bool // lines were dropped because of maxBytes, or reading ended early
	lost  Cut  // the lines that were dropped because of maxBytes, and those that were not kept before them
}

// Cut is what is missing at the beginning of a log for another reason than the number of lines that was requested.
type Cut struct {
	Any          bool
	Lines, Bytes int64 // 0: not known
}

func (c *Cut) add(d Cut) {
	c.Any = c.Any || d.Any
	c.Lines, c.Bytes = min(c.Lines+d.Lines, maxCut), min(c.Bytes+d.Bytes, maxCut)
}

// maxCut bounds the numbers that hosts send.
const maxCut = 1 << 50

// CutBefore returns what was cut of a run's log before a line.
func (l Line) CutBefore() Cut {
	lines, bytes := min(max(l.CutLines, 0), maxCut), min(max(l.CutBytes, 0), maxCut)
	return Cut{lines > 0, lines, bytes}
}

// lineCost is the memory in bytes that a line needs in addition to its text.
const lineCost = 96

func (w *window) add(l Line) {
	w.count++
	w.kept = append(w.kept, l)
	w.bytes += lineCost + len(l.Line)
	for w.first < len(w.kept) {
		tooMany := w.maxLines >= 0 && len(w.kept)-w.first > w.maxLines
		if !tooMany && (w.bytes <= w.maxBytes || len(w.kept)-w.first == 1) {
			break
		}
		if w.cut = w.cut || !tooMany; tooMany {
			w.lost = Cut{} // what is before the last lines was not requested
		} else {
			w.lost.add(w.kept[w.first].CutBefore())
			w.lost.add(Cut{true, 1, int64(len(w.kept[w.first].Line)) + 1})
		}
		w.bytes -= lineCost + len(w.kept[w.first].Line)
		w.kept[w.first] = Line{} // free its text
		w.first++
	}
	if w.first > 64 && w.first > len(w.kept)/2 {
		n := copy(w.kept, w.kept[w.first:])
		clear(w.kept[n:])
		w.kept, w.first = w.kept[:n], 0
	}
}

// missing returns what is missing at the beginning.
func (w *window) missing() Cut {
	out := w.lost
	for _, l := range w.lines() {
		out.add(l.CutBefore())
	}
	out.Any = out.Any || w.cut
	return out
}

// lines returns the kept lines, oldest first. No lines may be added afterwards.
func (w *window) lines() []Line { return w.kept[w.first:] }
