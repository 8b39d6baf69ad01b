package agent

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/musterhq/muster/internal/agentapi"
)

// What is kept is the end of the output, and its first line has how much is missing before it.
func TestKeptLog_CountsWhatItCuts(t *testing.T) {
	t.Parallel()
	kept := func(lines []string) (out []agentapi.LogFrame) {
		var tail tailBuffer
		for _, l := range lines {
			if err := tail.add(agentapi.LogFrame{TimeMS: 1, Line: l}); err != nil {
				t.Fatal(err)
			}
		}
		raw, err := tail.bytes()
		if err != nil {
			t.Fatal(err)
		}
		for b := range bytes.Lines(raw) {
			var f agentapi.LogFrame
			if len(b) > maxKeptLine {
				t.Errorf("a line of %d bytes", len(b))
			}
			if err := json.Unmarshal(b, &f); err != nil {
				t.Fatal(err)
			}
			out = append(out, f)
		}
		return out
	}
	if got := kept([]string{"one", "two"}); len(got) != 2 || got[0].CutLines != 0 || got[0].CutBytes != 0 {
		t.Errorf("a short log: %+v", got)
	}
	lines, total := []string{}, 0
	for i := range 60_000 {
		lines = append(lines, fmt.Sprintf("line %05d of a training", i))
		total += len(lines[i]) + 1
	}
	got := kept(lines)
	bytes := got[0].CutBytes
	for _, f := range got {
		bytes += int64(len(f.Line)) + 1
	}
	if got[0].CutLines != int64(len(lines)-len(got)) || got[0].Line != lines[got[0].CutLines] || bytes != int64(total) ||
		got[1].CutLines != 0 {
		t.Errorf("%d lines of %d, cut %d and %d bytes", len(got), len(lines), got[0].CutLines, got[0].CutBytes)
	}
	worst := strings.Repeat("\x01", 64<<10) // JSON escapes each with six bytes
	if got := kept([]string{worst, worst, worst, worst}); len(got) == 0 || got[len(got)-1].Line != worst {
		t.Errorf("%d of the longest lines are kept", len(got))
	}
}
