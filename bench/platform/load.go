package platform

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Load runs do for every number below n on workers goroutines, as fast as they go, and says how long each call took
// and all together. It stops at the first error.
func Load(ctx context.Context, workers, n int, do func(ctx context.Context, worker,
	i int) error) (each []time.Duration, all time.Duration, err error) {
	each = make([]time.Duration, n)
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var next atomic.Int64
	var wg sync.WaitGroup
	began := time.Now()
	for w := range workers {
		wg.Go(func() {
			for ctx.Err() == nil {
				i := int(next.Add(1)) - 1
				if i >= n {
					return
				}
				at := time.Now()
				if err := do(ctx, w, i); err != nil {
					cancel(err)
				}
				each[i] = time.Since(at)
			}
		})
	}
	wg.Wait()
	return each, time.Since(began), context.Cause(ctx)
}

// Paced is Load with calls that come on a clock, perSecond of them, whether or not those before are done; each is timed
// from the moment it should have begun. With fewer than workers under way none waits.
func Paced(ctx context.Context, workers, n int, perSecond float64,
	do func(ctx context.Context, worker, i int) error) ([]time.Duration, error) {
	began := time.Now()
	due := func(i int) time.Time { return began.Add(time.Duration(float64(i) / perSecond * float64(time.Second))) }
	late := make([]time.Duration, n)
	each, _, err := Load(ctx, workers, n, func(ctx context.Context, worker, i int) error {
		if wait := time.Until(due(i)); wait > 0 {
			select {
			case <-time.After(wait):
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		err := do(ctx, worker, i)
		late[i] = time.Since(due(i))
		return err
	})
	copy(each, late)
	return each, err
}

// Run is what a load came to.
type Run struct {
	PerSecond float64       `json:"per_second"` // calls, times what each of them carried
	P50       time.Duration `json:"p50_ns"`     // of a call
	P99       time.Duration `json:"p99_ns"`
	// Processor time per unit: of this process, load included, and of PostgreSQL.
	OwnCPU      time.Duration `json:"own_cpu_ns"`
	PostgresCPU time.Duration `json:"postgres_cpu_ns"`
}

// Summary sums up a load whose calls carried so many units in all.
func Summary(each []time.Duration, all time.Duration, units int, used CPU) Run {
	s := slices.Sorted(slices.Values(each))
	at := func(q float64) time.Duration { return s[min(len(s)-1, int(q*float64(len(s))))] }
	n := time.Duration(units)
	return Run{
		PerSecond:   float64(units) / all.Seconds(),
		P50:         at(0.5),
		P99:         at(0.99),
		OwnCPU:      used.Own / n,
		PostgresCPU: used.Postgres / n,
	}
}
