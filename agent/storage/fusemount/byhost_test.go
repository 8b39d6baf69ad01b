package fusemount

import (
	"testing"
	"time"

	"github.com/musterhq/muster/agent/storage/fusemount/wire"
	"github.com/musterhq/muster/internal/agentapi"
)

// A program that ends before it has mounted anything, or that cannot be started, is the host's own problem.
func TestWhatTheHostCannotMountIsItsProblem(t *testing.T) {
	t.Parallel()
	for _, program := range []string{"/bin/false", "/nothing/muster-mount"} {
		m := New(Config{Dir: t.TempDir(), Program: program})
		t.Cleanup(m.Close)
		ref := agentapi.LeaseRef{Lease: "ls_a", Epoch: 1}
		m.Want(Wanted{Ref: ref, ID: "bkt_a", Config: &wire.Config{Cache: t.TempDir()}})
		until := time.Now().Add(20 * time.Second)
		for st := m.State(ref, "bkt_a"); !st.ByHost; st = m.State(ref, "bkt_a") {
			if time.Now().After(until) {
				t.Fatalf("%s: %+v", program, st)
			}
			time.Sleep(20 * time.Millisecond)
		}
	}
}
