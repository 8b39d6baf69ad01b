package agent

import (
	"context"
	"errors"
	"log/slog"

	"github.com/musterhq/muster/internal/agentapi"
)

// backoff slows messages of one kind down when the control plane has too many of them. It logs this once, until the
// control plane accepts such a message again.
type backoff struct {
	log  *slog.Logger
	what string // name of the messages in the log
	on   bool
}

// wait reports whether err is an *agentapi.TooMany, and if so waits for the time that the error names: changes in the
// meantime go with the next message. It returns early only if ctx ends.
func (b *backoff) wait(ctx context.Context, err error) bool {
	var much *agentapi.TooMany
	if !errors.As(err, &much) {
		b.on = b.on && err != nil
		return false
	}
	if !b.on {
		b.log.Warn("the control plane has too many "+b.what+" of this host: they wait, nothing of them is lost", "wait",
			much.Wait)
	}
	b.on = true
	return pause(ctx, much.Wait, nil)
}
