package nodelog

// window keeps the last lines that were added: at most maxLines (negative = no limit) and about maxBytes.
type window struct {
	maxLines, maxBytes int

	kept  []Line
	first int // index of the oldest line in kept
	bytes int
	count int  // number of lines added
	cut   bool // lines were dropped because of maxBytes, or reading ended early
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
		w.cut = w.cut || !tooMany
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

// lines returns the kept lines, oldest first. No lines may be added afterwards.
func (w *window) lines() []Line { return w.kept[w.first:] }
