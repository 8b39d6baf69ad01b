package agentapi

import (
	"fmt"
	"time"
)

// TooMany reports that a host sent more messages of a kind than a server accepts, or that more messages of all hosts
// wait than the server can handle soon. The message was not read: send its content again after Wait, together with
// whatever is new by then. Under overload each host gets a time of its own.
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

// HeaderWait is the header of a message that says how long its sender waits for the reply, in whole milliseconds. A
// server does not handle a message whose sender no longer waits. Without it, the server assumes RequestWait.
const HeaderWait = "Muster-Wait-Ms"

// RequestWait is how long an agent waits for the reply to a request. The server commits before it replies.
const RequestWait = 15 * time.Second

// MaxRetry is the longest wait that an agent accepts: no reply silences a host for longer.
const MaxRetry = time.Minute

// TooManyIn returns the error in a reply's RetryMS, or nil.
func TooManyIn(retryMS int64) error {
	if retryMS <= 0 {
		return nil
	}
	return &TooMany{Wait: time.Duration(min(retryMS, MaxRetry.Milliseconds())) * time.Millisecond}
}
