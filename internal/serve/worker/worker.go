// Package worker does what nobody waits for: it looks at clusters whose time has come, expires quotes and keys, gives
// up hosts that stay away, collects logs, and talks to Stripe.
//
// Every job is a scan of rows that are due, bounded, and safe to run on any number of replicas at once: what one has
// taken the others skip or find done. There is no queue: due times are columns of the rows themselves, so nothing can
// be lost between a row and its job, a new deployment inherits the work as it stands, and a rent inserts no jobs.
// (River's InsertTx would notify in every rent, and its periodic schedules live in one leader's memory.)
package worker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/musterhq/muster/internal/metrics"
)

// Job is one kind of work.
type Job struct {
	Name  string
	Every time.Duration // from the end of one pass to the next, give or take a tenth
	// Run makes one bounded pass and says how much it did. It must be safe to run beside itself on other replicas.
	Run func(ctx context.Context) (did int, err error)
	// Limit bounds one pass; 0 = one minute.
	Limit time.Duration
}

// Worker runs jobs, each in a loop of its own, so that a slow one delays no other.
type Worker struct {
	jobs []Job
	log  *slog.Logger

	mu     sync.Mutex
	cancel context.CancelFunc
	done   sync.WaitGroup
}

// New starts nothing.
func New(log *slog.Logger, jobs ...Job) *Worker {
	return &Worker{jobs: jobs, log: log}
}

// Start begins all loops. They end with ctx or Stop. Starting twice is an error.
func (w *Worker) Start(ctx context.Context) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.cancel != nil {
		return errors.New("worker: started already")
	}
	ctx, w.cancel = context.WithCancel(ctx)
	for _, j := range w.jobs {
		w.done.Go(func() { w.loop(ctx, j) })
	}
	return nil
}

// Stop ends all loops and waits for the passes under way, at most until ctx ends. Whatever a pass leaves undone is
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
		return fmt.Errorf("worker: passes are still under way: %w", ctx.Err())
	}
}

// RunOnce makes one pass of the named job.
func (w *Worker) RunOnce(ctx context.Context, name string) (did int, err error) {
	i := slices.IndexFunc(w.jobs, func(j Job) bool { return j.Name == name })
	if i < 0 {
		return 0, fmt.Errorf("worker: there is no job %q", name)
	}
	return w.once(ctx, w.jobs[i])
}

// maxPause bounds the pause after repeated failures.
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

// once runs a pass and turns a panic into an error: one bad row must not end the process that serves everybody.
func (w *Worker) once(ctx context.Context, j Job) (did int, err error) {
	limit := j.Limit
	if limit == 0 {
		limit = time.Minute
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	began := time.Now()
	defer func() { metrics.Job(j.Name, began, did, err) }()
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic in %s: %v", j.Name, p)
		}
	}()
	return j.Run(ctx)
}

// jitter spreads the replicas' passes.
func jitter(d time.Duration) time.Duration {
	return d - d/10 + rand.N(d/5+1)
}
