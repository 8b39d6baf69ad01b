package cuda

import (
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/musterhq/muster/agent/machine/gpucheck"
)

// Numbers of the measurement.
const (
	ringTime   = 100 * time.Millisecond // how long the slowest GPU sends at least
	ringRounds = 1 << 14                // how often it sends at most
	ringTries  = 100_000                // steps of the search for an order of the GPUs
)

// rings measures, for the GPUs of each model, how fast each sends to the next one while all of them do: the rate of a
// ring all-reduce, in which each GPU sends 2(n−1)/n times what is added up. GPUs that cannot be put into an order in
// which each has direct access to the next one's memory are not measured.
func (c *checker) rings(cards []*card) *gpucheck.Failure {
	models := map[string][]*card{}
	for _, g := range cards {
		models[g.Name] = append(models[g.Name], g)
	}
	for _, g := range cards {
		if models[g.Name][0] != g || len(models[g.Name]) < 2 {
			continue
		}
		if ring := circle(models[g.Name]); ring != nil {
			if failure := c.turn(ring); failure != nil {
				return failure
			}
		}
	}
	return nil
}

// circle returns the GPUs in an order in which each reaches the next one, and the last one the first; nil if there is
// none, or none was found.
func circle(cards []*card) []*card {
	tries := ringTries
	var extend func([]*card) []*card
	extend = func(path []*card) []*card {
		tries--
		last := path[len(path)-1]
		if len(path) == len(cards) {
			if slices.Contains(last.Peers, path[0].UUID) {
				return path
			}
			return nil
		}
		for _, next := range cards {
			if tries > 0 && !slices.Contains(path, next) && slices.Contains(last.Peers, next.UUID) {
				if found := extend(append(slices.Clip(path), next)); found != nil {
					return found
				}
			}
		}
		return nil
	}
	return extend(cards[:1])
}

// hop is one GPU's part of a ring.
type hop struct {
	from, to       *card
	source, target pointer // on from and on to
	stream         stream  // of from
	start, end     event   // in stream
	seed           uint32
	took           time.Duration
}

// turn lets each GPU send to the next one, longer and longer, and compares what arrived.
func (c *checker) turn(ring []*card) *gpucheck.Failure {
	const step = gpucheck.StepRing
	for _, g := range ring {
		c.step(g.UUID, step)
	}
	hops := make([]*hop, len(ring))
	failure := onThread(func() *gpucheck.Failure {
		for i, g := range ring {
			hops[i] = &hop{from: g, to: ring[(i+1)%len(ring)], seed: uint32(i+1) * 0x01000193}
			if err := hops[i].prepare(c.words); err != nil {
				return err.failure(step, g.UUID)
			}
		}
		return nil
	})
	for rounds := 1; failure == nil; rounds *= 2 {
		var longest time.Duration
		if longest, failure = pass(hops, 4*c.words, rounds, step); longest >= ringTime || rounds >= ringRounds {
			for _, h := range hops {
				h.from.Next, h.from.RingGbps = h.to.UUID, 8*rate(rounds*4*c.words, h.took)
			}
			break
		}
	}
	if failure == nil {
		failure = onThread(func() *gpucheck.Failure { return compareRing(hops, c.words, step) })
	}
	for _, g := range ring {
		c.step(g.UUID, "")
	}
	return failure
}

// onThread keeps the calling goroutine on its thread, to which contexts belong.
func onThread(do func() *gpucheck.Failure) *gpucheck.Failure {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	return do()
}

// prepare makes the buffers and the stream of a hop, gives its GPU direct access to the next one, and fills what is
// sent.
func (h *hop) prepare(words int) (err *callError) {
	if err = use(h.to.context); err != nil {
		return err
	}
	if h.target, err = alloc(4 * words); err != nil {
		return err
	}
	if err = use(h.from.context); err != nil {
		return err
	}
	if _, err = enablePeer(h.to.context); err != nil { // as NCCL does; each GPU has one peer here
		return err
	}
	if h.source, err = alloc(4 * words); err != nil {
		return err
	}
	if h.stream, err = newStream(); err != nil {
		return err
	}
	for _, e := range []*event{&h.start, &h.end} {
		if *e, err = newEvent(); err != nil {
			return err
		}
	}
	if err = launchFill(h.from.fill, h.source, words, h.seed); err != nil {
		return err
	}
	return synchronize()
}

// pass lets all GPUs send at the same time, each that many times. It returns how long the slowest took.
func pass(hops []*hop, bytes, rounds int, step string) (longest time.Duration, _ *gpucheck.Failure) {
	var ready, done sync.WaitGroup
	ready.Add(len(hops))
	start := make(chan struct{})
	failures := make([]*gpucheck.Failure, len(hops))
	for i, h := range hops {
		done.Go(func() {
			failures[i] = onThread(func() *gpucheck.Failure {
				err := use(h.from.context)
				ready.Done()
				<-start
				if err == nil {
					err = h.send(bytes, rounds)
				}
				if err != nil {
					return err.failure(step, h.from.UUID, h.to.UUID)
				}
				return nil
			})
		})
	}
	ready.Wait()
	close(start)
	done.Wait()
	for i, h := range hops {
		if failures[i] != nil {
			return longest, failures[i]
		}
		longest = max(longest, h.took)
	}
	return longest, nil
}

// send sends, and takes the time by the GPU's clock, so that a busy host does not make links look slow.
func (h *hop) send(bytes, rounds int) *callError {
	err := record(h.start, h.stream)
	for n := 0; n < rounds && err == nil; n++ {
		err = toPeerLater(h.target, h.to.context, h.source, h.from.context, bytes, h.stream)
	}
	if err == nil {
		err = record(h.end, h.stream)
	}
	if err == nil {
		err = await(h.stream)
	}
	if err == nil {
		h.took, err = elapsed(h.start, h.end)
	}
	return err
}

// compareRing compares what arrived with what was sent.
func compareRing(hops []*hop, words int, step string) *gpucheck.Failure {
	back := make([]uint32, words)
	for _, h := range hops {
		err := use(h.to.context)
		if err == nil {
			err = fromGPU(back, h.target)
		}
		if err != nil {
			return err.failure(step, h.to.UUID)
		}
		if f := arrived(back, h.seed); f != nil {
			f.GPUs, f.Step = []string{h.from.UUID, h.to.UUID}, step
			return f
		}
	}
	return nil
}
