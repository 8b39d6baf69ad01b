package payout

import "time"

// anchor is a Monday, 06:00 UTC: with a week between payouts they fall on Mondays.
var anchor = time.Date(2024, 1, 1, 6, 0, 0, 0, time.UTC)

// next returns the first moment of the schedule after now.
func next(now time.Time, every time.Duration) time.Time {
	return now.UTC().Add(every - mod(now.Sub(anchor), every))
}

func mod(a, b time.Duration) time.Duration { return ((a % b) + b) % b }

// retryAfter returns how long after the n-th failure in a row (from 1) the next payout is tried.
func retryAfter(n int) time.Duration { return min(24*time.Hour, time.Hour<<min(max(n-1, 0), 10)) }
