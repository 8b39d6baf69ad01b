package text

import (
	"fmt"
	"time"
)

// Duration formats a duration for people, cut off to the tenth of a second: "1 h 41 min 06.0 s", "2 min 42.8 s",
// "30.0 s". Negative durations are "0.0 s".
func Duration(d time.Duration) string {
	tenths := max(0, d.Milliseconds()/100)
	h, m, s := tenths/36000, tenths/600%60, float64(tenths%600)/10
	switch {
	case h > 0:
		return fmt.Sprintf("%d h %02d min %04.1f s", h, m, s)
	case m > 0:
		return fmt.Sprintf("%d min %04.1f s", m, s)
	default:
		return fmt.Sprintf("%.1f s", s)
	}
}
