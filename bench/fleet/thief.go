package fleet

import (
	"context"
	"fmt"
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

// ThiefCalls is what the process that steals processor time does when it is called.
type ThiefCalls struct{}

// Steal takes half of the processors for some time, without waiting for its end. Its threads have real-time priority,
// so nothing else gets their processors; Linux leaves others a twentieth.
func (t *ThiefCalls) Steal(d time.Duration, _ *None) error {
	n := max(runtime.NumCPU()/2, 1)
	began, until := make(chan error, n), time.Now().Add(d)
	for i := range n {
		go func() {
			runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine
			var only unix.CPUSet
			only.Set(i)
			err := unix.SchedSetaffinity(0, &only)
			if err == nil {
				err = unix.SchedSetAttr(0, &unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_FIFO, Priority: 1}, 0)
			}
			began <- err
			for err == nil && time.Now().Before(until) {
			}
		}()
	}
	for range n {
		if err := <-began; err != nil {
			return fmt.Errorf("real-time priority: %w", err)
		}
	}
	return nil
}

// stolenFor is how long half of the processor time is stolen.
const stolenFor = time.Minute

// robbed kills the server and starts it again while half of the processor time is stolen. It returns how long after the
// end of the theft all hosts had reported; 0 if they had before.
func (s *system) robbed(ctx context.Context) (time.Duration, error) {
	thief, err := spawn(ctx, argThief)
	if err != nil {
		return 0, err
	}
	defer thief.kill()
	s.server.kill()
	began := time.Now()
	if _, err := call[None](thief, "Steal", stolenFor); err != nil {
		return 0, err
	}
	if _, err := s.up(ctx); err != nil {
		return 0, err
	}
	_, err = each[None](s.fleet, "Arrive", None{})
	return max(time.Since(began)-stolenFor, 0), err
}
