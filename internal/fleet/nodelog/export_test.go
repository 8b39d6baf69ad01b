package nodelog

import "time"

// SetRunTime changes how long a host may take to send what a run has printed.
func (r *Reader) SetRunTime(d time.Duration) { r.runTime = d }

// MaxRank is how much of a rank one answer holds, in bytes.
const MaxRank = maxRank
