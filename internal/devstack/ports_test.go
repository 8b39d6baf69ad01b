package devstack

import (
	"net"
	"slices"
	"testing"
)

// Ports that were found for one platform are not found for another, though nothing listens on them yet.
func TestFoundPortsAreGuarded(t *testing.T) {
	t.Parallel()
	found := map[int]bool{}
	for range 40 {
		free, guard, err := freePorts(8)
		if err != nil {
			t.Fatal(err)
		}
		defer guard.Close()
		for _, p := range append(free, guard.Addr().(*net.TCPAddr).Port) {
			if found[p] {
				t.Errorf("%d was found twice", p)
			}
			found[p] = true
		}
		if len(free) != 8 || !slices.IsSorted(free) || free[0] < lowestPort || free[7] >= portsEnd {
			t.Errorf("%v", free)
		}
	}
}

// A platform that starts again holds the guard of its ports again; one that finds it taken goes on without.
func TestAPlatformGuardsItsPortsAgain(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	a, err := loadState(dir)
	if err != nil {
		t.Fatal(err)
	}
	if l, err := net.Listen("tcp", local(a.Ports.Guard)); err == nil {
		l.Close()
		t.Error("the ports are not guarded")
	}
	b, err := loadState(dir)
	if err != nil || b.guard != nil || b.Ports != a.Ports {
		t.Errorf("%+v %v", b, err)
	}
	a.guard.Close()
	c, err := loadState(dir)
	if err != nil || c.guard == nil {
		t.Fatalf("%+v %v", c, err)
	}
	c.guard.Close()
}
