package hostlink

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/fleet/host"
	"github.com/musterhq/muster/internal/id"
)

// gpuLookup is a store that answers which GPUs a host has.
type gpuLookup func() map[string]id.GPU

func (f gpuLookup) GPUs(context.Context, id.Host) (map[string]id.GPU, error) { return f(), nil }

func (gpuLookup) AppendTelemetry(context.Context, []host.Series) error { return nil }

func (gpuLookup) Leases(context.Context, id.Host) (map[string]id.Lease, error) { return nil, nil }

func (gpuLookup) AppendNodeTelemetry(context.Context, []host.NodeSeries) error { return nil }

// A host's GPUs that were read before its newest inventory are not remembered: the next samples are those of the new
// ones too.
func TestAnInventoryMeanwhileIsNotMissed(t *testing.T) {
	t.Parallel()
	h, old, added := id.New[id.Host](), id.New[id.GPU](), id.New[id.GPU]()
	known := map[string]id.GPU{"GPU-old": old}
	var r *recorder
	r = newRecorder(gpuLookup(func() map[string]id.GPU {
		if _, ok := known["GPU-new"]; ok {
			return known
		}
		before := known
		known = map[string]id.GPU{"GPU-old": old, "GPU-new": added}
		r.forget(h) // the inventory is committed while the answer is under way
		return before
	}), time.Now, slog.New(slog.DiscardHandler))
	for range 2 {
		if err := r.take(t.Context(), h, []agentapi.GPUSample{{GPU: "GPU-old"}, {GPU: "GPU-new"}}); err != nil {
			t.Fatal(err)
		}
	}
	if len(r.waited[old]) == 0 || len(r.waited[added]) != 1 {
		t.Errorf("%d samples of the old GPU, %d of the new one", len(r.waited[old]), len(r.waited[added]))
	}
}
