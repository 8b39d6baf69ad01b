package market

import "cmp"

// waste says how much taking the ask's GPUs from a class would break the fleet up. Smaller is better; it only ever
// decides between equal prices.
type waste struct {
	stranded int     // GPUs left that nobody can rent: fewer than the offer's least
	lost     float64 // what the demand to come loses, see package pack
	left     int     // free GPUs left on the host
	fabric   bool    // takes from a fabric for a cluster that needs none
}

// wasteOf is the waste of taking gpus from one host of the class.
func wasteOf(c *class, a *Request, gpus int) waste {
	w := waste{left: c.hostFree - gpus, lost: c.supply.lost(c.free, gpus)}
	if left := c.free - gpus; left > 0 && left < c.minGPUs {
		w.stranded = left
	}
	w.fabric = !c.fabric.IsZero() && (a.Nodes == 1 && !a.Joins || a.Scope == ScopeHost)
	return w
}

// less orders two classes of one price. Where the waste is equal, smaller and then weaker hosts go first, and what is
// left decides by the facts alone, so that a placement does not depend on the order in which hosts were put.
func (w waste) less(v waste, c, d *class) bool {
	return cmp.Or(
		cmp.Compare(w.stranded, v.stranded),
		cmp.Compare(w.lost, v.lost),
		cmp.Compare(w.left, v.left),
		cmp.Compare(b2i(w.fabric), b2i(v.fabric)),
		cmp.Compare(c.hostTotal, d.hostTotal),
		cmp.Compare(c.vramGB, d.vramGB),
		cmp.Compare(c.diskFreeGB, d.diskFreeGB),
		cmp.Compare(c.scratchFreeGB, d.scratchFreeGB),
		cmp.Compare(c.ramMB, d.ramMB),
		cmp.Compare(c.cpuCores, d.cpuCores),
		cmp.Compare(c.model, d.model),
		cmp.Compare(c.region, d.region),
	) < 0
}
