package market_test

import (
	"strings"
	"testing"
)

// Of hosts with one price the one that holds the image is taken, whatever else would decide.
func TestHostsThatHoldTheImageComeFirst(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.host("one", 2, "2.00")
	two := w.host("two", 8, "2.00") // breaks up more than the others: not taken first without the image
	w.host("three", 2, "2.00")
	w.exec("INSERT INTO host_image (host_id, ref, digest) VALUES ($1, 'index.docker.io/pytorch/pytorch:2.4', 'sha256:0')",
		two)
	s := spec(1, 1, "")
	s.Image = "pytorch/pytorch:2.5"
	if n := w.plan(w.tenant, s).Nodes[0]; n.Host == two || n.Cached {
		t.Errorf("%+v", n)
	}
	s.Image = "pytorch/pytorch:2.4"
	p := w.plan(w.tenant, s)
	if n := p.Nodes[0]; n.Host != two || !n.Cached || !strings.Contains(n.Lines[1].Text, "holds the image") {
		t.Errorf("%+v", n)
	}
	s.Nodes = 3
	held := 0
	for _, n := range w.plan(w.tenant, s).Nodes {
		if n.Cached {
			held++
		}
	}
	if held != 1 {
		t.Errorf("%d of three nodes on the host that holds it", held)
	}
}

func TestACheaperHostIsTakenWithoutTheImage(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	holds, cheap := w.host("holds", 2, "2.00"), w.host("cheap", 2, "1.00")
	w.exec("INSERT INTO host_image (host_id, ref, digest) VALUES ($1, 'index.docker.io/pytorch/pytorch:2.4', 'sha256:0')",
		holds)
	s := spec(1, 1, "")
	s.Image = "pytorch/pytorch:2.4"
	if n := w.plan(w.tenant, s).Nodes[0]; n.Host != cheap || n.Cached {
		t.Errorf("dearer than need be: %+v", n)
	}
}
