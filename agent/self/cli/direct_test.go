package cli

import (
	"testing"

	"github.com/musterhq/muster/agent/net/link"
)

// Where there is a relay, a public address counts as reachable only if the relay has proven it. Private addresses that
// an operator advertises need no proof.
func TestWhoIsReachedDirectly(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name      string
		advertise string
		proof     *link.Proof
		direct    bool
		problem   bool
	}{
		{"not tried", "203.0.113.7", nil, false, false},
		{"proven", "203.0.113.7", &link.Proof{Relays: 2, Direct: true}, true, false},
		{"refuted", "203.0.113.7", &link.Proof{Relays: 2, Why: "none of 2 relays"}, false, true},
		{"no relay to prove it by", "203.0.113.7", &link.Proof{}, true, false},
		{"a rack", "10.1.2.3", nil, true, false},
	} {
		h := &hostDaemon{flags: &runFlags{hostFlags: hostFlags{advertise: []string{tc.advertise}}}}
		if tc.proof != nil {
			h.proof.Store(tc.proof)
		}
		if got := h.direct(); got != tc.direct {
			t.Errorf("%s: direct %t", tc.name, got)
		}
		if p := h.reachProblem(); (p != nil) != tc.problem {
			t.Errorf("%s: %+v", tc.name, p)
		}
	}
}
