package agent

import (
	"testing"

	"github.com/musterhq/muster/internal/agentapi"
)

// The upload after a run's end is given up when nothing has been uploaded for a while, and not before.
func TestFlushing_GivesUpWithoutProgress(t *testing.T) {
	t.Parallel()
	type look struct {
		ms    int64
		files int
		bytes int64
		sent  int64
		fails bool
	}
	for name, c := range map[string]struct {
		looks []look
		stuck int64 // ms of the look that finds it stuck; 0: none
	}{
		"the store fails": {[]look{{0, 1, 7, 0, true}, {59_000, 1, 7, 900, true}, {60_000, 1, 7, 900, true}}, 60_000},
		"the store takes no more bytes": {[]look{{0, 1, 7, 0, false}, {60_000, 1, 7, 9, false}, {300_000, 1, 7, 9, false}},
			300_000},
		"one file after the other": {looks: []look{{0, 3, 7, 0, true}, {59_000, 2, 6, 0, true}, {100_000, 2, 6, 0, true},
			{118_000, 1, 5, 0, true}}},
		"a large file is sent": {looks: []look{{0, 1, 1 << 40, 0, true}, {60_000, 1, 1 << 40, 2 << 20, true},
			{119_000, 1, 1 << 40, 2 << 20, true}, {120_000, 1, 1 << 40, 9 << 20, true}}},
		"a large file of which a byte a second is sent": {[]look{{0, 1, 1 << 40, 0, true}, {60_000, 1, 1 << 40, 60, true}},
			60_000},
		"files are closed after the end": {looks: []look{{0, 1, 1, 0, true}, {30_000, 9, 9, 0, true}, {50_000, 8, 8, 0, true},
			{100_000, 7, 7, 0, true}}},
		"a failing store works again": {looks: []look{{0, 1, 7, 0, true}, {59_000, 1, 7, 0, true}, {90_000, 1, 7, 0, false}}},
	} {
		t.Run(name, func(t *testing.T) {
			var f flushing
			got := int64(0)
			for _, l := range c.looks {
				left := agentapi.Uploads{Files: l.files, Bytes: l.bytes}
				if l.fails {
					left.Problem = "503"
				}
				var stuck bool
				if f, stuck = f.next(l.ms, left, func() int64 { return l.sent }); stuck && got == 0 {
					got = l.ms
				}
			}
			if got != c.stuck {
				t.Errorf("stuck at %d ms, want %d", got, c.stuck)
			}
		})
	}
}
