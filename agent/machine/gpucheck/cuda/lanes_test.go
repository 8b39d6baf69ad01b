package cuda

import "testing"

// Peaks in data sheets, in TFLOPS of 32-bit arithmetic: lanes × 2 × multiprocessors × boost clock.
func TestLanes(t *testing.T) {
	t.Parallel()
	for name, g := range map[string]struct {
		major, minor, sms int
		ghz, tflops       float64
	}{
		"P100 SXM2": {6, 0, 56, 1.48, 10.6},
		"GTX 1080":  {6, 1, 20, 1.733, 8.9},
		"V100 SXM2": {7, 0, 80, 1.53, 15.7},
		"T4":        {7, 5, 40, 1.59, 8.1},
		"A100 SXM4": {8, 0, 108, 1.41, 19.5},
		"A40":       {8, 6, 84, 1.74, 37.4},
		"RTX 4090":  {8, 9, 128, 2.52, 82.6},
		"H200 SXM":  {9, 0, 132, 1.98, 66.9},
	} {
		got := 2 * float64(lanes(g.major, g.minor)*g.sms) * g.ghz / 1e3
		if got < 0.98*g.tflops || got > 1.02*g.tflops {
			t.Errorf("%s: %.1f TFLOPS, its data sheet has %.1f", name, got, g.tflops)
		}
	}
}
