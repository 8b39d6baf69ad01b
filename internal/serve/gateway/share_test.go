package gateway

import (
	"testing"

	"github.com/musterhq/muster/internal/id"
)

func TestAnOrgDoesNotTakeAllConnections(t *testing.T) {
	t.Parallel()
	g := New(Config{})
	hog, other := id.New[id.Org](), id.New[id.Org]()
	var leave func()
	for range maxFromOrg {
		var ok bool
		if leave, ok = g.share(hog); !ok {
			t.Fatal("refused too early")
		}
	}
	if _, ok := g.share(hog); ok {
		t.Error("one more was let in")
	}
	if _, ok := g.share(other); !ok {
		t.Error("another org was refused")
	}
	leave()
	leave() // twice is once
	if _, ok := g.share(hog); !ok {
		t.Error("a place that was left is not free")
	}
	if _, ok := g.share(hog); ok {
		t.Error("leaving twice freed two places")
	}
}
