package host

import "github.com/musterhq/muster/internal/agentapi"

// tooOld reports whether an agent's protocol is older than this server requires for new leases. A host with such an
// agent keeps its leases but gets no new ones.
func tooOld(protocol int) bool { return protocol < agentapi.OldestRented }
