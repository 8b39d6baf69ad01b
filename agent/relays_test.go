package agent_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/musterhq/muster/agent/machine/hostinfo"
	"github.com/musterhq/muster/internal/agentapi"
)

// A running lease's relay token is renewed in the overlay process that runs: the same one goes on. The token is in the
// overlay's folder and not in the agent's memory of the lease.
func TestARenewedRelayTokenReachesTheOverlay(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	token := func(expires time.Duration) string {
		return agentapi.NewRelayToken([]byte("shared with relays"), agentapi.RelayClaims{
			Cluster: [16]byte{1},
			Epoch:   1,
			Expires: time.Now().Add(expires),
		}).Text()
	}
	first, second := token(time.Hour), token(2*time.Hour)
	spec := h.spec()
	spec.Network.Relays, spec.Network.RelayToken = []string{"127.0.0.1:9"}, first
	spec = h.launch(spec)
	h.await(spec.LeaseRef, "running", running)
	holds := func(token string) bool {
		b, err := os.ReadFile(filepath.Join(h.folder(spec.LeaseRef), "overlay", "state.json"))
		return err == nil && bytes.Contains(b, []byte(token))
	}
	if !holds(first) {
		t.Error("the overlay did not get its token")
	}
	process := func() string {
		t.Helper()
		pid, err := exec.Command("pgrep", "-f", "overlay "+h.folder(spec.LeaseRef)).Output()
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimSpace(string(pid))
	}
	before := process()
	h.set(func() {
		h.until[spec.LeaseRef], h.relay[spec.LeaseRef] = 1_000_000_000+hostinfo.BootMS()+3_600_000, second
	})
	h.agent.Wake(agentapi.Wake{Revision: 1 << 40}) // it asks at once, and nothing but the extension is new
	poll(t, "the new token", func() bool { return holds(second) && !holds(first) })
	h.await(spec.LeaseRef, "running on", running)
	if after := process(); after != before {
		t.Errorf("process %s became %s", before, after)
	}
	if b, err := os.ReadFile(filepath.Join(h.folder(spec.LeaseRef), "lease.json")); err != nil ||
		bytes.Contains(b, []byte(second)) || bytes.Contains(b, []byte(first)) {
		t.Errorf("the agent wrote the token down: %v", err)
	}
}
