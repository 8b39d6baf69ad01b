package agent

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/musterhq/muster/agent/workload/container"
	"github.com/musterhq/muster/agent/workload/image"
	"github.com/musterhq/muster/internal/agentapi"
)

// A registry that does not answer is retried for about a minute; then the node fails with that reason.
func TestARegistryIsGivenUpInTheEnd(t *testing.T) {
	t.Parallel()
	away := fmt.Errorf("pull: %w", &image.Away{Registry: "registry.test", Why: "does not answer in time"})
	if o := final(actPull, away, 100, pullPatience-time.Second); o != nil {
		t.Fatalf("given up too soon: %+v", o)
	}
	o := final(actPull, away, 1, pullPatience)
	if o == nil || o.State != agentapi.NodeFailed || o.Reason != agentapi.ReasonRegistryAway ||
		o.Detail != "the registry registry.test does not answer in time" {
		t.Errorf("%+v", o)
	}
}

// A run that is kicked tries a step again sooner than its pauses are: that does not shorten how long an engine that
// comes back, a disk or an overlay is waited for.
func TestKicksDoNotShortenPatience(t *testing.T) {
	t.Parallel()
	refused := container.Refusal{Reason: agentapi.ReasonRuntimeFailed, Detail: "start the work container"}
	for _, tc := range []struct {
		do       action
		err      error
		tries    int
		patience time.Duration
		reason   string
	}{
		{actStartWork, refused, refusals, refusalPatience, agentapi.ReasonRuntimeFailed},
		{actMakeScratch, errors.New("no device"), scratchTries, scratchPatience, agentapi.ReasonScratchFailed},
		{actStartOverlay, errors.New("no device"), overlayTries, overlayPatience, agentapi.ReasonOverlayFailed},
	} {
		if o := final(tc.do, tc.err, 100, tc.patience-1); o != nil {
			t.Errorf("%s is given up after many tries, too soon: %+v", tc.do, o)
		}
		if o := final(tc.do, tc.err, tc.tries-1, time.Hour); o != nil {
			t.Errorf("%s is given up after too few tries: %+v", tc.do, o)
		}
		if o := final(tc.do, tc.err, tc.tries, tc.patience); o == nil || o.Reason != tc.reason {
			t.Errorf("%s: %+v", tc.do, o)
		}
		pauses, failures := time.Duration(0), 0
		for range tc.tries {
			pauses += backOff(&failures)
		}
		if pauses < tc.patience {
			t.Errorf("%s: without kicks its tries are over after %v, and it is given up after %v", tc.do, pauses, tc.patience)
		}
	}
	if o := final(actPull, container.Refusal{Reason: agentapi.ReasonGPUInUse}, 0, 0); o == nil ||
		o.Reason != agentapi.ReasonGPUInUse {
		t.Errorf("what the host itself refuses is refused at once: %+v", o)
	}
}
