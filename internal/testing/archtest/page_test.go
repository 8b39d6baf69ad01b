package archtest

import (
	"os"
	"path/filepath"
	"testing"
)

// TestThePageNamesEveryRoom compares the rooms that docs/architecture.md names with asides and with the folders. The
// rooms on floors are those of the page: TestFloors fails for a folder without one.
func TestThePageNamesEveryRoom(t *testing.T) {
	t.Parallel()
	page := read(t, filepath.Join("..", "..", "..", "docs", "architecture.md"))
	named := map[string]bool{}
	for _, m := range row.FindAllStringSubmatch(page, -1) {
		floor, room := m[1], m[2]
		if named[room] {
			t.Errorf("docs/architecture.md names %s twice", room)
		}
		named[room] = true
		if _, aside := asides[room]; aside == (floor != "") {
			t.Errorf("docs/architecture.md puts %s on floor %q; outside the floors: %v", room, floor, aside)
		}
		if _, err := os.Stat(folderOf(room)); err != nil {
			t.Errorf("docs/architecture.md names %s, which does not exist", room)
		}
	}
	for room := range asides {
		if !named[room] {
			t.Errorf("docs/architecture.md does not name %s", room)
		}
	}
	if len(named) < 60 {
		t.Errorf("only %d rooms seen: the page is not read right", len(named))
	}
}

// folderOf returns the folder of a room.
func folderOf(room string) string {
	top := filepath.Join("..", "..", "..")
	if room == "web" || room == "client" {
		return filepath.Join(top, room)
	}
	return filepath.Join(top, "internal", room)
}
