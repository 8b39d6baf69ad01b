package text

import (
	"testing"
	"time"
)

func TestDuration(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]string{
		-time.Second:                               "0.0 s",
		999 * time.Millisecond:                     "0.9 s",
		162_801 * time.Millisecond:                 "2 min 42.8 s",
		time.Hour + 41*time.Minute + 6*time.Second: "1 h 41 min 06.0 s",
		49*time.Hour + 59*time.Second:              "49 h 00 min 59.0 s",
	} {
		if got := Duration(d); got != want {
			t.Errorf("Duration(%v) = %q, want %q", d, got, want)
		}
	}
}
