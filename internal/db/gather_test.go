package db_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/musterhq/muster/internal/db"
)

// Calls that arrive while a set is being made are made together, each gets its own result, and none is lost.
func TestGather_MakesOneSetOfThoseThatWait(t *testing.T) {
	t.Parallel()
	began, end := make(chan struct{}), make(chan struct{})
	var sets atomic.Int64
	g := db.NewGather(1, 100, time.Minute, func(_ context.Context, all []int) ([]int, error) {
		if sets.Add(1) == 1 {
			close(began)
			<-end
		}
		out := make([]int, len(all))
		for i, n := range all {
			out[i] = 2 * n
		}
		return out, nil
	})
	var calls sync.WaitGroup
	var asked atomic.Int64
	call := func(n int) {
		calls.Go(func() {
			asked.Add(1)
			if got, err := g.Do(t.Context(), n); err != nil || got != 2*n {
				t.Errorf("of %d: %d, %v", n, got, err)
			}
		})
	}
	call(1)
	<-began
	for n := range 150 {
		call(n)
	}
	for g.Waiting() < 150 {
		time.Sleep(time.Millisecond)
	}
	close(end)
	calls.Wait()
	if n := sets.Load(); n != 3 {
		t.Errorf("%d sets of 1, 100 and 50 calls", n)
	}
}

// A set weighs no more than it may, unless it is a single call.
func TestGather_SetsAreNotTooHeavy(t *testing.T) {
	t.Parallel()
	began, end := make(chan struct{}), make(chan struct{})
	var once sync.Once
	var sets [][]int
	g := db.NewGather(1, 10, time.Minute, func(_ context.Context, all []int) ([]int, error) {
		once.Do(func() { close(began); <-end })
		sets = append(sets, all)
		return all, nil
	}).Weighing(func(n int) int { return n })
	var calls sync.WaitGroup
	for i, n := range []int{1, 3, 7, 50, 2, 2} {
		if i == 1 {
			<-began
		}
		calls.Go(func() { _, _ = g.Do(t.Context(), n) })
		for i > 0 && g.Waiting() < i {
			time.Sleep(time.Millisecond)
		}
	}
	close(end)
	calls.Wait()
	if want := [][]int{{1}, {3, 7}, {50}, {2, 2}}; !cmp.Equal(sets, want) {
		t.Errorf("sets %v, want %v", sets, want)
	}
}

// A call whose set fails is made again by itself; a panic is the error of those whose call it was.
func TestGather_OneCallsTroubleIsNotTheOthers(t *testing.T) {
	t.Parallel()
	bad := errors.New("bad")
	began, end := make(chan struct{}), make(chan struct{})
	var once sync.Once
	g := db.NewGather(1, 100, time.Minute, func(_ context.Context, all []int) ([]int, error) {
		once.Do(func() { close(began); <-end })
		for _, n := range all {
			switch n {
			case 13:
				return nil, bad
			case 14:
				panic("unlucky")
			}
		}
		return all, nil
	})
	var calls sync.WaitGroup
	for i := range 20 {
		if i == 1 {
			<-began
		}
		calls.Go(func() {
			_, err := g.Do(t.Context(), i)
			switch {
			case i == 13 && !errors.Is(err, bad), i == 14 && (err == nil || errors.Is(err, bad)),
				i != 13 && i != 14 && err != nil:
				t.Errorf("call %d: %v", i, err)
			}
		})
	}
	for g.Waiting() < 19 {
		time.Sleep(time.Millisecond)
	}
	close(end)
	calls.Wait()
}

// A reader gets what was true when it asked or later, however many share a read.
func TestShared_NobodyGetsWhatWasReadBefore(t *testing.T) {
	t.Parallel()
	var s db.Shared[string, int64]
	var version, reads atomic.Int64
	var all sync.WaitGroup
	for range 16 {
		all.Go(func() {
			for range 500 {
				wrote := version.Add(1)
				got, err := s.Read(t.Context(), "page", func(context.Context) (int64, error) {
					reads.Add(1)
					v := version.Load()
					time.Sleep(50 * time.Microsecond) // others come
					return v, nil
				})
				if err != nil || got < wrote {
					t.Errorf("read %d after %d was written: %v", got, wrote, err)
					return
				}
			}
		})
	}
	all.Wait()
	if n := reads.Load(); n > 16*500/2 {
		t.Errorf("%d reads for %d callers", n, 16*500)
	}
	if n := s.Keys(); n != 0 {
		t.Errorf("%d keys are kept", n)
	}
}

// A caller that gives up does not end the read that others share with it.
func TestShared_OneThatGivesUpEndsNothing(t *testing.T) {
	t.Parallel()
	var s db.Shared[int, string]
	began, end := make(chan struct{}), make(chan struct{})
	var all sync.WaitGroup
	all.Go(func() {
		_, _ = s.Read(t.Context(), 1, func(context.Context) (string, error) { close(began); <-end; return "first", nil })
	})
	<-began
	impatient, giveUp := context.WithCancel(t.Context())
	gone := make(chan struct{})
	all.Go(func() {
		defer close(gone)
		_, err := s.Read(impatient, 1, func(ctx context.Context) (string, error) { return "second", ctx.Err() })
		if !errors.Is(err, context.Canceled) {
			t.Errorf("the one that gave up: %v", err)
		}
	})
	for !s.Waits(1) {
		time.Sleep(time.Millisecond)
	}
	all.Go(func() {
		got, err := s.Read(t.Context(), 1, func(ctx context.Context) (string, error) { return "second", ctx.Err() })
		if err != nil || got != "second" {
			t.Errorf("the one that waited: %q, %v", got, err)
		}
	})
	giveUp()
	<-gone
	close(end)
	all.Wait()
}
