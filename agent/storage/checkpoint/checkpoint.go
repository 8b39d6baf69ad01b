// Package checkpoint is what jobs, the agent and its process for volumes say to each other about checkpoints.
package checkpoint

import (
	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/id"
)

// Request is a snapshot of a folder that a job requests.
type Request struct {
	ID     string            `json:"id"` // snp_…
	Ref    agentapi.LeaseRef `json:"ref"`
	Volume string            `json:"volume"`
	Dir    string            `json:"dir"` // relative; "" = the whole volume
	Label  string            `json:"label,omitempty"`
	Lookup bool              `json:"lookup,omitempty"` // begin none: only look one up
	// AllRanks: it is committed once all ranks of the cluster have requested one with the same label.
	AllRanks bool `json:"all_ranks,omitempty"`
	Keep     bool `json:"keep,omitempty"` // not replaced by a newer one of the same folder while it waits
}

// Stages of a checkpoint.
const (
	StageWaiting = "waiting"
	StageSending = "sending" // cut: the job may write again
	StageDurable = "durable"
	StageFailed  = "failed"
)

// State is how far a checkpoint is.
type State struct {
	ID    string `json:"snapshot"`
	Label string `json:"label,omitempty"`
	Stage string `json:"stage"`
	// As is the id of the commit, if it is another one: that of all ranks.
	As string `json:"committed_as,omitempty"`
	// Missing are the ranks that have not requested it yet.
	Missing []int `json:"missing_ranks,omitempty"`
	// DurableAtMS is when it was committed, in milliseconds since 1970.
	DurableAtMS int64  `json:"durable_at_ms,omitempty"`
	Consistency string `json:"consistency,omitempty"`
	Code        string `json:"code,omitempty"` // of a failure: an agentapi.Volume… code, replaced, full, store
	Message     string `json:"message,omitempty"`
}

// Codes of failures that the control plane does not have.
const (
	CodeReplaced = "replaced"  // by a newer one of the same folder
	CodeFull     = "full"      // the volume has no room for a snapshot
	CodeStore    = "store"     // the store, or the host's disk
	CodeNotFound = "not_found" // no such volume, folder or checkpoint
	CodeRanks    = "ranks"     // other ranks have not requested it, and it was given up
)

// NewID returns a fresh id for a snapshot.
func NewID() string { return id.New[id.Snapshot]().String() }
