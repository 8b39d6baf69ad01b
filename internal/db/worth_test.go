package db_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/musterhq/muster/internal/db"
)

// A set begins beside another only if enough calls wait, and those that are too few for that are made when the other
// has ended.
func TestGather_ASecondSetIsWorthIt(t *testing.T) {
	t.Parallel()
	began, end := make(chan int, 10), make(chan struct{})
	g := db.NewGather(2, 100, time.Minute, func(_ context.Context, all []int) ([]int, error) {
		began <- len(all)
		<-end
		return all, nil
	}).Worth(3)
	var calls sync.WaitGroup
	call := func(wait int) {
		t.Helper()
		calls.Go(func() {
			if _, err := g.Do(t.Context(), 0); err != nil {
				t.Error(err)
			}
		})
		for g.Waiting() != wait {
			time.Sleep(time.Millisecond)
			if t.Context().Err() != nil {
				return
			}
		}
	}
	call(0)
	if n := <-began; n != 1 {
		t.Fatalf("the first set has %d calls", n)
	}
	call(1)
	call(2)
	if len(began) > 0 {
		t.Fatal("two calls are a set beside another")
	}
	calls.Go(func() { _, _ = g.Do(t.Context(), 0) })
	if n := <-began; n != 3 {
		t.Fatalf("the second set has %d calls", n)
	}
	call(1)
	end <- struct{}{} // of two sets that are under way one ends, and leaves the call to the other
	end <- struct{}{}
	if n := <-began; n != 1 {
		t.Fatalf("the last set has %d calls", n)
	}
	close(end)
	calls.Wait()
}
