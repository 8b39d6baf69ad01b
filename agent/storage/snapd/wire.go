// Package snapd is the process that snapshots and restores the volumes of a run, and how the agent uses it. Each run
// that has volumes has its own, with little priority and bounded memory: what it reads is large and a tenant's, and
// none of it may slow the host's leases down, end its agent, or cost another lease anything.
//
// The agent sends what should be attached, as a whole, again and again (a level, not commands), and gets how each
// volume is. The process ends with its agent; the next one goes on where it was, once the control plane has sent the
// volumes' keys again: they are in memory only. A process that ends by a fault, or because it needs more memory than it
// gets, is started again; if that happens before its volumes are restored, its run fails, and names the reason.
package snapd

import (
	"github.com/musterhq/muster/agent/net/line"
	"github.com/musterhq/muster/agent/net/peers"
	"github.com/musterhq/muster/internal/agentapi"
)

// Names in the folder that the agent and a process share, which only root can read. serverSocket lies in the folder
// above, which all processes share.
const (
	controlSocket = "control.sock" // of the process
	serverSocket  = "server.sock"  // of the agent, which passes requests on to the control plane
	lockFile      = "lock"
	freezesDir    = "freezes"
)

// Attached is a volume that should be attached.
type Attached struct {
	Ref   agentapi.LeaseRef `json:"ref"`
	Mount agentapi.Mount    `json:"mount"` // with its key
	Root  string            `json:"root"`  // where its file system is mounted
	PID   int               `json:"pid"`   // of the workload; 0: none runs, nothing has to be stopped for a cut
	// Peers are the ranks that restore the volume at the same time; nil: this one restores alone, or all have restored.
	Peers *peers.Cluster `json:"peers,omitempty"`
	// Notice: the host will be reclaimed soon. Announced: the cloud of the host's machine announces that it will be
	// stopped, restarted or moved, maybe much later. Each is a reason for a snapshot on notice.
	Notice    bool `json:"notice,omitempty"`
	Announced bool `json:"announced,omitempty"`
	// Limits are those of what the run's volumes move over the host's line, and Moved is the file that counts it.
	Limits line.Limits `json:"limits,omitzero"`
	Moved  string      `json:"moved"`
	// Ended: the workload has ended. If the policy says so a last snapshot is taken; then the session is closed.
	Ended bool `json:"ended,omitempty"`
}

// State is how a volume is.
type State struct {
	Ref      agentapi.LeaseRef `json:"ref"`
	Volume   string            `json:"volume"`
	Restored bool              `json:"restored,omitempty"`
	Done     int64             `json:"done,omitempty"` // of the restore, in bytes
	Total    int64             `json:"total,omitempty"`
	Label    string            `json:"label,omitempty"` // of the snapshot that was restored
	// Closed: after Ended, nothing more will be committed.
	Closed bool `json:"closed,omitempty"`
	// Fenced: the lease writes the volume no more.
	Fenced bool `json:"fenced,omitempty"`
	// Refused is why the volume cannot be attached, for good; Problem is why it is not yet, or why the last snapshot
	// failed. For people.
	Refused string `json:"refused,omitempty"`
	// Unreadable: it is refused because of what was stored, so that no other host can attach it.
	Unreadable bool   `json:"unreadable,omitempty"`
	Problem    string `json:"problem,omitempty"`
	// Snapshot is the last commit, of all ranks if they were committed together; "" = none yet.
	Snapshot string `json:"snapshot,omitempty"`
	Seq      int64  `json:"seq,omitempty"`
}
