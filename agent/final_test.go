package agent

import (
	"fmt"
	"testing"
	"time"

	"github.com/musterhq/muster/agent/image"
	"github.com/musterhq/muster/internal/agentapi"
)

// A registry that does not answer is asked again for about a minute; then the node fails with that reason.
func TestARegistryIsGivenUpInTheEnd(t *testing.T) {
	t.Parallel()
	away := fmt.Errorf("pull: %w", &image.Away{Registry: "registry.test", Why: "does not answer in time"})
	if o := final(actPull, away, 100, pullPatience-time.Second); o != nil {
		t.Fatalf("given up too soon: %+v", o)
	}
	o := final(actPull, away, 1, pullPatience)
	if o == nil || o.State != agentapi.NodeFailed || o.Reason != agentapi.ReasonRegistryAway || o.Detail != "the registry registry.test does not answer in time" {
		t.Errorf("%+v", o)
	}
}
