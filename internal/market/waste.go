package market

import "cmp"

// waste says how much taking the ask's GPUs from a class would break the fleet up. Smaller is better; it only ever
// decides between equal prices.
type waste struct {
	stranded int  // GPUs left that nobody can rent: fewer than the offer's least
	opened   bool // breaks into a host nobody uses
	left     int  // free GPUs left on the host
	fabric   bool // takes from a fabric for a cluster that needs none
}

func wasteOf(f *facts, a *Ask) waste {
	w := waste{left: f.hostFree - a.GPUs}
	if left := f.free - a.GPUs; left > 0 && left < f.minGPUs {
		w.stranded = left
	}
	w.opened = w.left > 0 && f.hostFree == f.hostTotal
	w.fabric = !f.fabric.IsZero() && (a.Nodes == 1 || a.Scope == ScopeHost)
	return w
}

// less orders two classes of one price. Where the waste is equal, smaller and then weaker hosts go first, and what is
// left decides by the facts alone, so that a placement does not depend on the order in which hosts were put.
func (w waste) less(v waste, c, d *class) bool {
	return cmp.Or(
		cmp.Compare(w.stranded, v.stranded),
		compareBool(w.opened, v.opened),
		cmp.Compare(w.left, v.left),
		compareBool(w.fabric, v.fabric),
		cmp.Compare(c.hostTotal, d.hostTotal),
		cmp.Compare(c.vramGB, d.vramGB),
		cmp.Compare(c.diskFreeGB, d.diskFreeGB),
		cmp.Compare(c.ramMB, d.ramMB),
		cmp.Compare(c.cpuCores, d.cpuCores),
		cmp.Compare(c.model, d.model),
		cmp.Compare(c.region, d.region),
	) < 0
}

func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}
