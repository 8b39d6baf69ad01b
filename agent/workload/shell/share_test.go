package shell

import (
	"log/slog"
	"net"
	"strings"
	"testing"

	"github.com/hashicorp/yamux"

	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/fault"
)

// One lease has no more shell connections than its share, and another lease of the host still gets one when the host's
// are all taken.
func TestOneTenantDoesNotTakeAllShells(t *testing.T) {
	t.Parallel()
	s := New(&node{procs: make(chan *process, 4)}, slog.New(slog.DiscardHandler))
	open := func(lease string) error {
		t.Helper()
		ours, theirs := net.Pipe()
		served := make(chan error, 1)
		go func() { served <- s.Serve(t.Context(), agentapi.LeaseRef{Lease: lease, Epoch: 1}, theirs) }()
		c, err := yamux.Client(ours, Mux())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		_, reply := request(t, c, agentapi.ShellRequest{Op: "dance"})
		switch {
		case strings.Contains(reply.Error, "the most it can have"):
			c.Close()
			return within(t, served)
		case !strings.Contains(reply.Error, "does not know"):
			t.Errorf("%s is answered %q", lease, reply.Error)
		}
		return nil
	}
	for i := range MaxConnections / MaxPerLease {
		lease := string(rune('a' + i))
		for n := range MaxPerLease {
			if err := open(lease); err != nil {
				t.Fatalf("connection %d of %s: %v", n, lease, err)
			}
		}
		if err := open(lease); !fault.Is(err, fault.RateLimited) {
			t.Errorf("%s has more than its share: %v", lease, err)
		}
	}
	for n := range refusedPerServed * MaxPerLease { // all at the same time, and none ends before the others are answered
		ours, theirs := net.Pipe()
		go func() { _ = s.Serve(t.Context(), agentapi.LeaseRef{Lease: "a", Epoch: 1}, theirs) }()
		c, err := yamux.Client(ours, Mux())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		_, reply := request(t, c, agentapi.ShellRequest{Op: "dance"})
		if !strings.Contains(reply.Error, "the most it can have") {
			t.Fatalf("connection %d beyond the share is answered %q", n, reply.Error)
		}
	}
	if err := open("neighbour"); err != nil {
		t.Errorf("the neighbour's shell: %v", err)
	}
}
