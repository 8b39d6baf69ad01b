package platform

import (
	"os"
	"syscall"
	"testing"
	"time"
)

// One wish that comes as many signals is one; the next is impatience.
func TestSignalsThatComeTogetherAreOne(t *testing.T) {
	t.Parallel()
	signals := make(chan os.Signal)
	ctx, impatient := urged(t.Context(), signals, time.Hour)
	for range 5 {
		signals <- syscall.SIGTERM // taken: nothing is buffered
	}
	<-ctx.Done()
	if impatient.Err() != nil {
		t.Error("five signals at once are taken for impatience")
	}

	later := make(chan os.Signal)
	ctx, impatient = urged(t.Context(), later, time.Nanosecond)
	later <- syscall.SIGINT
	<-ctx.Done()
	for impatient.Err() == nil { // one of these comes after the nanosecond
		select {
		case later <- syscall.SIGINT:
		case <-impatient.Done():
		}
	}
}
