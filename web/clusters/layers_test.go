package clusters

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/web/view"
)

func TestLayersOfAPull(t *testing.T) {
	t.Parallel()
	if got := layers(agentapi.Progress{Step: "manifest"}); got != nil {
		t.Errorf("before they are known: %+v", got)
	}
	p := agentapi.Progress{Step: "layers", Layers: []agentapi.Layer{
		{
			Digest: "aa",
			Done:   10,
			Total:  10,
			Cached: true,
		}, {Digest: "bb", Done: 20, Total: 20}, {Digest: "cc", Done: 5 << 20, Total: 10 << 20}, {Digest: "dd", Total: 40},
	}}
	want := &Layers{Summary: "2 of 4 layers here, 1 of them before",
		Moving: []Layer{{Digest: "cc", Percent: 50, Text: view.Bytes(5<<20) + " of " + view.Bytes(10<<20)}}}
	if d := cmp.Diff(want, layers(p)); d != "" {
		t.Error(d)
	}
}
