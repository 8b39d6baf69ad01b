package nodelog_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/fleet/nodelog"
)

func TestASearchFindsTextInAnyCase(t *testing.T) {
	t.Parallel()
	s, err := nodelog.NewSearch("q", " Loss=1. ")
	if err != nil {
		t.Fatal(err)
	}
	for line, want := range map[string][]string{
		"step 3 loss=1.5 LOSS=1.": {"step 3 ", "loss=1.", "5 ", "LOSS=1.", ""},
		"loss=12":                 nil, // the point is a point
	} {
		if s.Finds(line) != (want != nil) {
			t.Errorf("%q: %t", line, s.Finds(line))
		}
		if want == nil {
			continue
		}
		if diff := cmp.Diff(want, s.Split(line)); diff != "" {
			t.Errorf("%q (-want +got):\n%s", line, diff)
		}
	}
	if any, err := nodelog.NewSearch("q", "  "); err != nil || !any.Any() || !any.Finds("") {
		t.Errorf("no text: %v", err)
	}
	if _, err := nodelog.NewSearch("q", strings.Repeat("x", 201)); !fault.Is(err, fault.Invalid) {
		t.Errorf("a long text: %v", err)
	}
}

func TestASearchKeepsTheLastOfEachRank(t *testing.T) {
	t.Parallel()
	s, err := nodelog.NewSearch("q", "x")
	if err != nil {
		t.Fatal(err)
	}
	for tail, want := range map[int]string{-1: "x1 x2 x3 x4", 2: "x2 x3 x4", 1: "x3 x4", 0: ""} {
		var lines []nodelog.Line
		for i, text := range []string{"x1", "none", "x2", "x3", "x4", "none"} {
			rank := 0
			if i == 4 {
				rank = 1
			}
			lines = append(lines, nodelog.Line{Rank: rank, LogFrame: agentapi.LogFrame{Line: text}})
		}
		var got []string
		for _, l := range s.Last(lines, tail) {
			got = append(got, l.Line)
		}
		if diff := cmp.Diff(want, strings.Join(got, " ")); diff != "" {
			t.Errorf("tail %d (-want +got):\n%s", tail, diff)
		}
	}
}
