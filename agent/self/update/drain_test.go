package update

import (
	"context"
	"testing"
	"time"

	"github.com/musterhq/muster/internal/agentapi"
)

// The server withdraws an order while it is being followed, and the order fails; another order then ends the pause.
func TestAnOrderThatWasWithdrawnFails(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	u := &Updater{cfg: Config{retry: time.Hour}, news: make(chan struct{}, 1)}
	failed := agentapi.UpdateOrder{Version: "v1.2.0", Try: 1}
	u.last = Report{} // the report that came meanwhile has no order
	paused := make(chan struct{})
	go func() {
		defer close(paused)
		u.drain(ctx, failed)
	}()
	for same := range 3 {
		u.Reported(Report{Order: &agentapi.UpdateOrder{Version: "v1.2.0", Try: 1}, Full: same > 0})
	}
	u.Reported(Report{Order: &agentapi.UpdateOrder{Version: "v1.3.0", Try: 1}})
	select {
	case <-paused:
	case <-time.After(time.Minute):
	}
	if ctx.Err() != nil {
		t.Error("another order did not end the pause")
	}
}
