package agent_test

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/musterhq/muster/internal/agentapi"
)

// Peers that were set and could not be written down are set again until they are: an agent that is started without a
// server knows no others.
func TestPeersAreWrittenDown(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	spec := h.spec("/job", "run")
	spec.Nodes = 2
	spec.Network.Peers = []agentapi.Peer{{Rank: 1, Address: "10.77.0.2"}}
	h.want(spec)
	h.await(spec.LeaseRef, "waiting for its peer", func(st agentapi.LeaseStatus) bool {
		return st.WGKey != "" &&
			st.Progress.Step == "peers"
	})
	path := filepath.Join(h.folder(spec.LeaseRef), "lease.json")
	if err := os.Rename(path, path+".before"); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(path, "in the way"), 0o700); err != nil {
		t.Fatal(err)
	}
	key := "dG8gc2VlIGlmIHBlZXJzIGFyZSB3cml0dGVuIGRvd24="
	spec.Network.Peers = []agentapi.Peer{{Rank: 1, Address: "10.77.0.2", Key: key, Endpoints: []string{"127.0.0.1:9"}}}
	h.want(spec)
	h.await(spec.LeaseRef, "kept from writing", func(st agentapi.LeaseStatus) bool {
		return st.Progress.WaitingFor == "a step failed on the host and is tried again"
	})
	if err := os.RemoveAll(path); err != nil {
		t.Fatal(err)
	}
	poll(t, "the peer on the disk", func() bool {
		b, err := os.ReadFile(path)
		return err == nil && bytes.Contains(b, []byte(key))
	})
	h.want()
	h.await(spec.LeaseRef, "gone", gone)
}
