package archtest

import (
	"path/filepath"
	"regexp"
	"strconv"
	"testing"
)

// row is a room in one of the tables of docs/architecture.md, with its floor where it has one.
var row = regexp.MustCompile("(?m)^\\| (?:(\\d+) \\| )?`([a-z0-9/]+)` \\| .+ \\|$")

// TestThePageNamesEveryRoom compares docs/architecture.md with the plan that the other tests check the imports against.
func TestThePageNamesEveryRoom(t *testing.T) {
	t.Parallel()
	page := read(t, filepath.Join("..", "..", "..", "docs", "architecture.md"))
	named := map[string]bool{}
	for _, m := range row.FindAllStringSubmatch(page, -1) {
		floor, room := m[1], m[2]
		named[room] = true
		planned, onFloor := floors[room]
		_, aside := asides[room]
		switch {
		case !onFloor && !aside:
			t.Errorf("docs/architecture.md names %s, which is not in the plan", room)
		case onFloor && floor != strconv.Itoa(planned):
			t.Errorf("docs/architecture.md puts %s on floor %q; the plan says %d", room, floor, planned)
		case aside && floor != "":
			t.Errorf("docs/architecture.md puts %s on floor %s; it has none", room, floor)
		}
	}
	for room := range floors {
		if !named[room] {
			t.Errorf("docs/architecture.md does not name %s (floor %d)", room, floors[room])
		}
	}
	for room := range asides {
		if !named[room] {
			t.Errorf("docs/architecture.md does not name %s", room)
		}
	}
}
