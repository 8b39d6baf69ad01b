package agentapi

import (
	"fmt"
	"time"
)

// TooMany reports that a host sent more messages of a kind than a server accepts. The message was not read: send its
// content again after Wait, together with whatever is new by then.
type TooMany struct {
	Wait time.Duration
}

func (e *TooMany) Error() string {
	return fmt.Sprintf("too many reports; wait %d ms", e.Wait.Milliseconds())
}

// Ack returns the reply that reports it. It is a valid reply to a Sync, too: the field names are SyncReply's. Agents
// that do not know RetryMS treat it as a refused report, which they send again.
func (e *TooMany) Ack() Ack {
	return Ack{Error: e.Error(), RetryMS: e.Wait.Milliseconds()}
}

// MaxRetry is the longest wait that an agent accepts: no reply silences a host for longer.
const MaxRetry = time.Minute

// TooManyIn returns the error in a reply's RetryMS, or nil.
func TooManyIn(retryMS int64) error {
	if retryMS <= 0 {
		return nil
	}
	return &TooMany{Wait: time.Duration(min(retryMS, MaxRetry.Milliseconds())) * time.Millisecond}
}
