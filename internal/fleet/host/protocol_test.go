package host

import (
	"testing"

	"github.com/musterhq/muster/internal/agentapi"
)

// An agent of the protocol before this server's is rented on once there is one; one that names none never is.
func TestWhoIsTooOld(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		protocol int
		want     bool
	}{{0, true}, {agentapi.OldestRented - 1, true}, {agentapi.OldestRented, false}, {agentapi.Protocol, false}} {
		if tooOld(tc.protocol) != tc.want {
			t.Errorf("protocol %d: too old is %v", tc.protocol, !tc.want)
		}
	}
	if agentapi.OldestRented > max(agentapi.Protocol-1, 1) {
		t.Error("an upgrade of the servers would leave hosts without leases whose agents are one behind")
	}
}
