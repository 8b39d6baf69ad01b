package agent

import (
	"context"
	"errors"
	"log/slog"

	"github.com/musterhq/muster/internal/agentapi"
)

// backoff heeds the control plane when it has too many messages of one kind, and says so once until one is taken again.
type backoff struct {
	log  *slog.Logger
	what string // for people
	on   bool
}

// wait reports whether err is an *agentapi.TooMany, and waits then as long as it says: whatever happens meanwhile goes
// with the next message. It waits less only when ctx ends.
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
