package hostmem

import "fmt"

// Claim is a container with the memory that it was rented with.
type Claim struct {
	Container string
	Limit     int64 // bytes; 0: it has no limit, and cannot exceed it
	GPUs      int
	Hold      Hold
}

// own is how much memory of the driver's a container may hold for each GPU beyond its limit: channels, page tables and
// other buffers that CUDA itself needs.
const own = 256 << 20

// over returns by how much the container exceeds what it was rented with.
func (c Claim) over() int64 {
	if c.Limit <= 0 || c.Hold.Pinned <= 0 {
		return 0
	}
	return c.Hold.Pinned + c.Hold.Used - c.Limit - int64(c.GPUs)*own
}

// Blame returns the container that exceeds its memory the most, if the host's memory is short and one does. The others
// get what they have paid for, whatever it is that they hold.
func Blame(h Host, claims []Claim) (worst Claim, ok bool) {
	if !h.Short() {
		return Claim{}, false
	}
	for _, c := range claims {
		if over := c.over(); over > 0 && (!ok || over > worst.over()) {
			worst, ok = c, true
		}
	}
	return worst, ok
}

// Detail says why the container is ended, for the renter and the operator.
func (c Claim) Detail(h Host) string {
	return fmt.Sprintf("out of memory: the node held %s of pinned host memory (cudaHostAlloc, pin_memory) and %s of "+
		"other memory, more than its %s, and the host had only %s left", gib(c.Hold.Pinned), gib(c.Hold.Used), gib(c.Limit),
		gib(h.Available))
}

func gib(n int64) string { return fmt.Sprintf("%.1f GiB", float64(n)/(1<<30)) }
