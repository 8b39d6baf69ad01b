package packio

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"
)

// An Error is a request that the store has not done as it should. Its text is for people.
type Error struct {
	Op     string // "a read", "a write"
	Status int    // of the answer; 0: there was none, or it was cut off
	Code   string // that the store gives with the status; "" = none
	Cut    bool   // the answer was cut off

	stalled time.Duration // without a byte; 0: it did not stall
	// cause is what the network reported; nil: the answer itself. It is not unwrapped: it may be io.EOF, which means
	// the end of a file to those who read one.
	cause error
}

// FullCodes are the codes of stores that have no room, or of a quota that is used up. Some give them with status 403.
var FullCodes = []string{"QuotaExceeded", "InsufficientStorage", "StorageFull", "XMinioStorageFull",
	"ServiceQuotaExceeded",
	"XMinioAdminBucketQuotaExceeded", "InsufficientCapacity"}

// Full reports whether the store has no room.
func (e *Error) Full() bool {
	return e.Status == http.StatusInsufficientStorage || slices.Contains(FullCodes, e.Code)
}

// Missing reports whether the store does not have the pack, or not all of it.
func (e *Error) Missing() bool {
	return e.Code != "NoSuchBucket" &&
		(e.Status == http.StatusNotFound || e.Status == http.StatusRequestedRangeNotSatisfiable)
}

// Unsigned reports whether the store does not accept the signed request: another one may help.
func (e *Error) Unsigned() bool { return e.Status == http.StatusForbidden && !e.Full() }

// Error says what is wrong, in words that can be shown with what failed because of it.
func (e *Error) Error() string {
	answer := fmt.Sprintf("it answers %s with status %d", e.Op, e.Status)
	if e.Code != "" {
		answer += " " + e.Code
	}
	switch {
	case e.stalled > 0:
		return fmt.Sprintf("the store does not go on: %s made no progress for %s", e.Op, e.stalled)
	case e.Cut:
		return "the store cuts off what it sends"
	case e.Status == 0:
		return fmt.Sprintf("the store does not answer: %s", e.cause)
	case e.Full():
		return "the store is full: " + answer
	case e.Status == http.StatusServiceUnavailable, e.Status == http.StatusTooManyRequests:
		return "the store is overloaded: " + answer
	case e.Missing():
		return "the store does not have the pack: " + answer
	case e.Unsigned():
		return "the store refuses a signed request: its time is over, a clock is wrong, or the store's key has changed (" +
			answer + ")"
	case e.Op == "a read" && e.Status/100 == 2:
		return "the store does not answer a range as it was requested: " + answer
	}
	return "the store fails: " + answer
}

// Missing reports whether an error is that of a pack that the store does not have.
func Missing(err error) bool {
	var e *Error
	return errors.As(err, &e) && e.Missing()
}

// Unsigned reports whether an error is that of a signed request that the store does not accept.
func Unsigned(err error) bool {
	var e *Error
	return errors.As(err, &e) && e.Unsigned()
}
