package agentapi

// These are capabilities that an agent may have beyond its protocol number, in Sync.Capabilities and
// Inventory.Capabilities. The server relies on none that the agent did not list; agents from before this list send
// none.
const (
	CapSelfUpdate   = "self_update"   // it follows SyncReply.Update
	CapRelayRenewal = "relay_renewal" // it supports LeaseExtension.RelayToken: its leases may outlive the first token
	CapScratch      = "scratch"       // it gives a node LeaseSpec.ScratchGB
	CapPopularBound = "popular_bound" // it respects SyncReply.PopularBytes
	CapEntrypoint   = "entrypoint"    // it runs LeaseSpec.Entrypoint in place of the image's
	CapUser         = "user"          // it runs a node as LeaseSpec.User
	CapWakeState    = "wake_state"    // it applies Wake.Desired without a sync
	CapRequalify    = "requalify"     // it follows Desired.Requalify
	CapVolumes      = "volumes"       // it mounts LeaseSpec.Mounts; listed only where the host can (XFS with reflinks)
	CapRanks        = "volume_ranks"  // with CapVolumes: it mounts them with MountRanks, too
	CapLazy         = "volume_lazy"   // it mounts LeaseSpec.Lazy; listed only where the host can (FUSE, muster-mount)
	CapBuckets      = "buckets"       // it mounts LeaseSpec.Buckets; listed only where the host can (FUSE, muster-mount)
)

// Capabilities lists those of this version's agent.
func Capabilities() []string {
	return []string{CapSelfUpdate, CapRelayRenewal, CapScratch, CapPopularBound, CapEntrypoint, CapUser, CapWakeState,
		CapRequalify, CapRanks}
}

// UpdateOrder names the version of the agent that a host should run. An agent that already runs it does nothing.
type UpdateOrder struct {
	Version string `json:"version"`
	// Source is the https address of the folder that holds SHA256SUMS, its signature and the archives.
	Source string `json:"source"`
	// Try increases when an operator requests the same version again: hosts that have given it up start again.
	Try int `json:"try"`
}

// UpdateState is how far an agent is with its order.
type UpdateState string

const (
	UpdateNone       UpdateState = ""            // nothing to do
	UpdateUnmanaged  UpdateState = "unmanaged"   // not started by the launcher: it never replaces itself
	UpdateFetching   UpdateState = "fetching"    // downloading, verifying, installing
	UpdateWaiting    UpdateState = "waiting"     // the download failed; the agent retries
	UpdateTrial      UpdateState = "trial"       // the new version runs but has not proven itself yet
	UpdateDone       UpdateState = "done"        // the new version has proven itself
	UpdateRefused    UpdateState = "refused"     // not tried: it cannot run here, or is not newer
	UpdateRolledBack UpdateState = "rolled_back" // tried, and the previous version runs again
)

// UpdateStatus is an agent's report on the last order that it considered.
type UpdateStatus struct {
	State   UpdateState `json:"state"`
	Version string      `json:"version,omitempty"` // of the order
	Try     int         `json:"try,omitempty"`
	Detail  string      `json:"detail,omitempty"` // for people; ≤ 500 bytes
}
