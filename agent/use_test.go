package agent

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"testing"

	"github.com/musterhq/muster/agent/container"
)

type notedGPUs struct {
	GPUs
	noted []string
}

func (g *notedGPUs) NoteBefore(_ context.Context, uuids ...string) error {
	g.noted = append(g.noted, uuids...)
	return errors.New("the driver hangs") // which keeps no lease from starting
}

// Who uses a lease's GPUs is noted before it runs, so that the owner's desktop does not keep its end from coming.
func TestWhoUsesTheGPUsBeforeIsNoted(t *testing.T) {
	t.Parallel()
	for attach, want := range map[container.Attach][]string{container.AttachCDI: {"GPU-1", "GPU-2"}, container.AttachNone: nil} {
		g := &notedGPUs{}
		a := &Agent{cfg: Config{GPUs: g, Attach: attach}, log: slog.New(slog.DiscardHandler)}
		a.noteUse(t.Context(), []string{"GPU-1", "GPU-2"})
		a.noteUse(t.Context(), nil)
		if !slices.Equal(g.noted, want) {
			t.Errorf("attach %s: noted %v, want %v", attach, g.noted, want)
		}
	}
}
