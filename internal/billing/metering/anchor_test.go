package metering

import (
	"fmt"
	"testing"
	"time"

	"github.com/musterhq/muster/internal/testing/dbtest"
)

// Anchors that are asked for at the same time cost a few statements, and each boot gets its own. What a report waited
// here does not make its anchor late.
func TestIssueAnchors_TogetherAndEachItsOwn(t *testing.T) {
	t.Parallel()
	d, k := dbtest.NewMortal(t)
	w := newWorld(t, d, 0)
	c := NewCollector(d)
	const boots = 40
	const waited = time.Hour
	clocks := make([]BootClock, boots)
	for i := range clocks {
		clocks[i] = BootClock{w.host, fmt.Sprintf("other-%d", i), int64(1000 + i), time.Now()}
	}
	clocks[1].Came = clocks[1].Came.Add(-waited)
	clocks = append(clocks, clocks[0]) // a report that was sent twice
	var statements [2]int64
	for round := range statements {
		before := k.Statements.Load()
		got, err := c.issueAnchors(t.Context(), clocks)
		if err != nil {
			t.Fatal(err)
		}
		statements[round] = k.Statements.Load() - before
		for i, a := range got {
			if a == nil || a.BootID != clocks[i].BootID || a.BootMS != clocks[i].BootMS || a.Number != 1 {
				t.Fatalf("round %d: boot %d got %+v", round, i, a)
			}
		}
		late := time.Duration(got[0].ServerMS-got[1].ServerMS) * time.Millisecond
		if late < waited-time.Second || late > waited+time.Second {
			t.Errorf("round %d: a report that waited an hour here has an anchor %s earlier", round, late)
		}
	}
	if statements[0] > 5 || statements[1] > 2 {
		t.Errorf("%d statements for new boots and %d for known ones", statements[0], statements[1])
	}
}
