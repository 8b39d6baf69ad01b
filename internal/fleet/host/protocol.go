package host

import "github.com/musterhq/muster/internal/agentapi"

// tooOld reports whether an agent speaks a protocol older than this server rents on. Such a host keeps its leases and
// gets no new ones.
func tooOld(protocol int) bool { return protocol < agentapi.OldestRented }
