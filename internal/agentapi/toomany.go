package agentapi

import (
	"fmt"
	"time"
)

// TooMany says that a host sent more messages of a kind than a server takes. The message was not read: what it said is
// to be sent again after Wait, with whatever is new by then.
type TooMany struct {
	Wait time.Duration
}

func (e *TooMany) Error() string {
	return fmt.Sprintf("too many reports; wait %d ms", e.Wait.Milliseconds())
}

// Ack is the answer that says so. It is one to a Sync too: the names are SyncReply's. Agents that do not know RetryMS
// take it for a refused report, which they send again.
func (e *TooMany) Ack() Ack {
	return Ack{Error: e.Error(), RetryMS: e.Wait.Milliseconds()}
}

// MaxRetry is the longest wait an agent heeds: no answer keeps a host silent for longer.
const MaxRetry = time.Minute

// TooManyIn is the error in an answer's RetryMS, nil when it has none.
func TooManyIn(retryMS int64) error {
	if retryMS <= 0 {
		return nil
	}
	return &TooMany{Wait: time.Duration(min(retryMS, MaxRetry.Milliseconds())) * time.Millisecond}
}
