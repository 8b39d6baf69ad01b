// Package worker runs background jobs: it handles clusters that are due for action, expires quotes and keys, ends
// claims on hosts that stay unreachable, collects logs, and exchanges data with Stripe.
//
// Every job is a limited scan of rows that are due, and may run on any number of replicas at the same time: rows that
// one replica is processing are skipped by the others or found done. There is no queue. Due times are columns of the
// rows themselves, so no row can lose its job, a new deployment continues the pending work, and renting inserts no
// jobs. (River's InsertTx would send a notification in every rent, and its periodic schedules are in the memory of one
// leader.)
package worker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/metrics"
	"github.com/musterhq/muster/internal/tracing"
)

// Job is one kind of background work.
type Job struct {
	Name  string
	Every time.Duration // from the end of one pass to the start of the next, ± 10 %
	// Run makes one limited pass and returns how much it did. It must be safe to run concurrently on other replicas.
	Run func(ctx context.Context) (did int, err error)
	// Limit is the time limit of one pass; 0 = one minute.
	Limit time.Duration
}

// Worker runs jobs, each in its own loop, so that a slow job delays no other.
type Worker struct {
	jobs []Job
	log  *slog.Logger

	mu     sync.Mutex
	cancel context.CancelFunc
	done   sync.WaitGroup
}

// New returns a Worker. It starts no goroutines.
func New(log *slog.Logger, jobs ...Job) *Worker {
	return &Worker{jobs: jobs, log: log}
}

// Start starts all loops. They end when ctx is done or Stop is called. Starting twice is an error.
func (w *Worker) Start(ctx context.Context) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.cancel != nil {
		return errors.New("the worker was started already")
	}
	ctx, w.cancel = context.WithCancel(ctx)
	for _, j := range w.jobs {
		w.done.Go(func() { w.loop(ctx, j) })
	}
	return nil
}

// Stop ends all loops and waits until the running passes have ended or ctx is done. Work that a pass did not finish is
// still due.
func (w *Worker) Stop(ctx context.Context) error {
	w.mu.Lock()
	cancel := w.cancel
	w.mu.Unlock()
	if cancel == nil {
		return nil
	}
	cancel()
	idle := make(chan struct{})
	go func() {
		w.done.Wait()
		close(idle)
	}()
	select {
	case <-idle:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("passes are still under way: %w", ctx.Err())
	}
}

// RunOnce makes one pass of the named job.
func (w *Worker) RunOnce(ctx context.Context, name string) (did int, err error) {
	i := slices.IndexFunc(w.jobs, func(j Job) bool { return j.Name == name })
	if i < 0 {
		return 0, fmt.Errorf("job %q not found", name)
	}
	return w.once(ctx, w.jobs[i])
}

// maxPause is the longest pause after repeated failures, unless the job's interval is longer.
const maxPause = time.Minute

func (w *Worker) loop(ctx context.Context, j Job) {
	pause := j.Every
	for {
		did, err := w.once(ctx, j)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			pause = max(j.Every, min(2*pause, maxPause))
			w.log.Error("a background job failed", "job", j.Name, "did", did, "again_in", pause, "err", err)
		default:
			pause = j.Every
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(jitter(pause)):
		}
	}
}

// once runs a pass and converts a panic to an error, so that one bad row does not end the whole server process.
func (w *Worker) once(ctx context.Context, j Job) (did int, err error) {
	limit := j.Limit
	if limit == 0 {
		limit = time.Minute
	}
	ctx, cancel := context.WithTimeout(db.For(ctx, db.Jobs), limit)
	defer cancel()
	ctx, span := tracing.Begin(ctx, "job "+j.Name)
	began := time.Now()
	defer func() {
		metrics.Job(j.Name, began, did, err)
		span.Set("did", did)
		span.End(err)
	}()
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic in %s: %v\n%s", j.Name, p, debug.Stack())
		}
	}()
	return j.Run(ctx)
}

// jitter varies a pause at random, so that the passes of replicas do not coincide.
func jitter(d time.Duration) time.Duration {
	return d - d/10 + rand.N(d/5+1)
}
