package agentapi

// What an agent can do beyond its protocol number, in Sync.Capabilities and Inventory.Capabilities. The server counts
// on none that was not said: an agent of a version before this list says nothing.
const (
	CapSelfUpdate   = "self_update"   // it follows SyncReply.Update
	CapRelayRenewal = "relay_renewal" // it takes LeaseExtension.RelayToken: its leases may outlive the first token
	CapScratch      = "scratch"       // it gives a node LeaseSpec.ScratchGB
	CapPopularBound = "popular_bound" // it keeps to SyncReply.PopularBytes
)

// Capabilities are those of this version's agent.
func Capabilities() []string {
	return []string{CapSelfUpdate, CapRelayRenewal, CapScratch, CapPopularBound}
}

// UpdateOrder is the version of the agent a host should run. An agent that runs it already does nothing.
type UpdateOrder struct {
	Version string `json:"version"`
	// Source is the address of the folder that holds SHA256SUMS, its signature and the archives, https.
	Source string `json:"source"`
	// Try rises when an operator asks for the same version again: hosts that have given it up begin anew.
	Try int `json:"try"`
}

// UpdateState is how far an agent is with the order it has.
type UpdateState string

const (
	UpdateNone       UpdateState = ""            // nothing to do
	UpdateUnmanaged  UpdateState = "unmanaged"   // it was not started by the launcher: it never replaces itself
	UpdateFetching   UpdateState = "fetching"    // downloading, verifying, installing
	UpdateWaiting    UpdateState = "waiting"     // it could not be fetched; it is tried again
	UpdateTrial      UpdateState = "trial"       // the new version runs and has not proven itself
	UpdateDone       UpdateState = "done"        // the new version has proven itself
	UpdateRefused    UpdateState = "refused"     // not tried: it cannot run here, or is no newer
	UpdateRolledBack UpdateState = "rolled_back" // tried, and the version before runs again
)

// UpdateStatus is what an agent says of the last order it looked at.
type UpdateStatus struct {
	State   UpdateState `json:"state"`
	Version string      `json:"version,omitempty"` // of the order
	Try     int         `json:"try,omitempty"`
	Detail  string      `json:"detail,omitempty"` // for people; ≤ 500 bytes
}
