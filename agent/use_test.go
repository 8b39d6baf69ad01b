package agent

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/musterhq/muster/internal/agentapi"
)

type notedGPUs struct {
	GPULeases
	GPUOwners
	noted []string
}

func (g *notedGPUs) NoteBefore(_ context.Context, uuids ...string) error {
	g.noted = append(g.noted, uuids...)
	return errors.New("the driver hangs") // which keeps no lease from starting
}

func (*notedGPUs) OwnerUse() map[string]int64 {
	return map[string]int64{"GPU-1": 3 << 30, "GPU-2": 1 << 30, "GPU-3": 5 << 30}
}

// The cloud's announcement is reported while something of the renter's runs, in a line of limited length.
func TestAnAnnouncementIsToldWhileALeaseRuns(t *testing.T) {
	t.Parallel()
	says := "AWS: stop\n" + strings.Repeat("é", agentapi.MaxLeaving)
	a := &Agent{cfg: Config{Leaving: func() string { return says }}}
	got := a.leaving(view{rec: record{Started: true}})
	if !strings.HasPrefix(got, "AWS: stop é") || len(got) > agentapi.MaxLeaving || !utf8.ValidString(got) {
		t.Errorf("%q", got)
	}
	if got := a.leaving(view{rec: record{Started: true, Outcome: &outcome{}}}) + a.leaving(view{}); got != "" {
		t.Errorf("%q before the start or after the end", got)
	}
	if got := (&Agent{}).leaving(view{rec: record{Started: true}}); got != "" {
		t.Errorf("%q of a machine in no cloud", got)
	}
}

// Memory that the owner uses on a lease's GPUs is reported while something of the renter's runs on them, and only of
// those GPUs.
func TestOwnersMemoryIsToldWhileALeaseRuns(t *testing.T) {
	t.Parallel()
	use := &gpuUse{gpus: GPUs{Owners: &notedGPUs{}}}
	spec := agentapi.LeaseSpec{GPUs: []string{"GPU-1", "GPU-2"}}
	for want, rec := range map[int64]record{4096: {Spec: spec, Started: true}, 0: {Spec: spec}} {
		if got := use.ownersMB(view{rec: rec}); got != want {
			t.Errorf("%d MB, want %d", got, want)
		}
	}
	if got := use.ownersMB(view{rec: record{Spec: spec, Started: true, Outcome: &outcome{}}}); got != 0 {
		t.Errorf("%d MB after the end", got)
	}
}

// Programs that use a lease's GPUs are recorded before it runs, so that the owner's desktop does not delay its end.
func TestWhoUsesTheGPUsBeforeIsNoted(t *testing.T) {
	t.Parallel()
	for simulated, want := range map[bool][]string{false: {"GPU-1", "GPU-2"}, true: nil} {
		g := &notedGPUs{}
		use := &gpuUse{gpus: GPUs{Leases: g}, simulated: simulated, log: slog.New(slog.DiscardHandler)}
		use.noteUse(t.Context(), []string{"GPU-1", "GPU-2"})
		use.noteUse(t.Context(), nil)
		if !slices.Equal(g.noted, want) {
			t.Errorf("simulated %t: noted %v, want %v", simulated, g.noted, want)
		}
	}
}
