package cuda

import (
	"runtime"

	"github.com/musterhq/muster/agent/machine/gpucheck"
)

// peers copies between every two GPUs, in both directions, and lets a kernel on the one write into the memory of the
// other where the two have direct access: NCCL does so, and IOMMUs and bridges that redirect traffic break what kernels
// write more often than what the copy engines do.
func (c *checker) peers(cards []*card) *gpucheck.Failure {
	if len(cards) < 2 {
		return nil
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	buffers := make([]pointer, len(cards))
	for i, g := range cards {
		c.step(g.UUID, gpucheck.StepCopy)
		err := use(g.context)
		if err == nil {
			buffers[i], err = alloc(4 * (c.words / 4))
		}
		if err != nil {
			return err.failure(gpucheck.StepCopy, g.UUID)
		}
		c.step(g.UUID, "")
	}
	back := make([]uint32, c.words/4)
	for i, from := range cards {
		for j, to := range cards {
			if i == j {
				continue
			}
			p := route{from, to, buffers[i], buffers[j], uint32(i*len(cards)+j) * 0x01000193}
			if f := c.route(p, back); f != nil {
				return f
			}
		}
	}
	return nil
}

// route is two GPUs with a buffer on each.
type route struct {
	from, to       *card
	source, target pointer
	seed           uint32
}

// route checks one direction between two GPUs. Direct access is given up again in the end, so that it does not count
// against the number of peers that a GPU can have.
func (c *checker) route(p route, back []uint32) *gpucheck.Failure {
	step := func(name string) {
		c.step(p.from.UUID, name+" (from)")
		c.step(p.to.UUID, name+" (to)")
	}
	failed := func(name string, err *callError, seed uint32) *gpucheck.Failure {
		if err != nil {
			return err.failure(name, p.from.UUID, p.to.UUID)
		}
		f := arrived(back, seed)
		if f != nil {
			f.GPUs, f.Step = []string{p.from.UUID, p.to.UUID}, name
		}
		return f
	}
	step(gpucheck.StepCopy)
	direct, err := p.from.reach(p.to)
	if err == nil {
		err = p.copy(back)
	}
	if f := failed(gpucheck.StepCopy, err, p.seed); f != nil {
		return f
	}
	if direct {
		step(gpucheck.StepWrite)
		if f := failed(gpucheck.StepWrite, p.write(back), ^p.seed); f != nil {
			return f
		}
		if err = use(p.from.context); err == nil {
			err = disablePeer(p.to.context)
		}
		if err != nil {
			return err.failure(gpucheck.StepWrite, p.from.UUID, p.to.UUID)
		}
	}
	c.step(p.from.UUID, "")
	c.step(p.to.UUID, "")
	return nil
}

// reach gives a GPU direct access to a peer's memory, if the two can have it, and reports whether it has it.
func (g *card) reach(peer *card) (bool, *callError) {
	err := use(g.context)
	if err != nil {
		return false, err
	}
	can, err := canAccess(g.device, peer.device)
	if err != nil || !can {
		return false, err
	}
	direct, err := enablePeer(peer.context)
	if direct {
		g.Peers = append(g.Peers, peer.UUID)
	}
	return direct, err
}

// copy fills the buffer on one GPU, copies it to the other, and reads it there.
func (p route) copy(back []uint32) *callError {
	if err := launchFill(p.from.fill, p.source, len(back), p.seed); err != nil {
		return err
	}
	if err := synchronize(); err != nil {
		return err
	}
	if err := toPeer(p.target, p.to.context, p.source, p.from.context, 4*len(back)); err != nil {
		return err
	}
	if err := use(p.to.context); err != nil {
		return err
	}
	return fromGPU(back, p.target)
}

// write lets a kernel on the one GPU fill the buffer on the other, and reads it there.
func (p route) write(back []uint32) *callError {
	if err := use(p.from.context); err != nil {
		return err
	}
	if err := launchFill(p.from.fill, p.target, len(back), ^p.seed); err != nil {
		return err
	}
	if err := synchronize(); err != nil {
		return err
	}
	if err := use(p.to.context); err != nil {
		return err
	}
	return fromGPU(back, p.target)
}
