// Package wire is what the agent and its probe child say to each other: one JSON object per line, requests down,
// answers and events up. Answers may come in any order: a request that hangs in the driver holds up no other.
package wire

import (
	"encoding/json"
	"fmt"

	"github.com/musterhq/muster/internal/agentapi"
)

// MaxLine bounds a line in bytes.
const MaxLine = 4 << 20

// Methods of the probe. All but the first three are about one GPU.
const (
	MethodPing      = "ping"      // → null, from the probe itself: no driver is asked
	MethodStart     = "start"     // → null, once NVML has started: what hangs later is a GPU's doing
	MethodSystem    = "system"    // → System
	MethodDescribe  = "describe"  // → Description
	MethodPeers     = "peers"     // → []Peer, of every GPU by index
	MethodSample    = "sample"    // → agentapi.GPUSample
	MethodCondition = "condition" // → Condition
	MethodUse       = "use"       // → Use
	MethodPower     = "power"     // → Power, after it was set to Milliwatts
)

// Request asks the probe.
type Request struct {
	ID     uint64 `json:"id"` // from 1
	Method string `json:"method"`
	GPU    string `json:"gpu,omitempty"` // UUID
	PCI    string `json:"pci,omitempty"` // where the GPU was last; the probe looks there first
	// Milliwatts is the power limit to set, or DefaultPower.
	Milliwatts int64 `json:"mw,omitempty"`
	// Trial asks whether the driver answers at all: an answer that does not come is held against nobody.
	Trial bool `json:"-"`
}

// Message is what the probe says: the answer to the request ID, or with ID 0 an event.
type Message struct {
	ID     uint64          `json:"id,omitempty"`
	Result json.RawMessage `json:"result,omitempty"`
	Error  *Error          `json:"error,omitempty"`
	Event  *Event          `json:"event,omitempty"`
}

// NVML return codes the agent acts on.
const (
	CodeNotSupported     = 3
	CodeNotFound         = 6
	CodeDriverNotLoaded  = 9
	CodeLibraryNotFound  = 12
	CodeFunctionNotFound = 13
	CodeGPULost          = 15
	CodeResetRequired    = 16
	CodeMismatch         = 18
	CodeUnknown          = 999
)

// Error is NVML's refusal. Code 0 is the probe's own: a request it does not understand.
type Error struct {
	Code int    `json:"code"` // nvmlReturn_t
	Call string `json:"call"` // NVML function
	Text string `json:"text"`
	// Lookup: the GPU was not found, which may be another GPU's doing. It is no evidence against the one asked about.
	Lookup bool `json:"lookup,omitempty"`
}

func (e *Error) Error() string { return fmt.Sprintf("%s: %s (%d)", e.Call, e.Text, e.Code) }

// System is the driver, and the devices it lists.
type System struct {
	Driver    string   `json:"driver"`
	CUDA      string   `json:"cuda"` // highest supported, "12.4"
	NVML      string   `json:"nvml"`
	Library   string   `json:"library,omitempty"` // file that the probe has loaded
	Simulated bool     `json:"simulated"`
	Devices   []Device `json:"devices"`
}

// Device is one index of the driver's list; one whose handle cannot be had carries the error instead of its names.
type Device struct {
	Index int    `json:"index"`
	UUID  string `json:"uuid,omitempty"`
	PCI   string `json:"pci,omitempty"`
	Error *Error `json:"error,omitempty"`
}

// Description is a GPU without its health, and what only the agent needs of it.
type Description struct {
	agentapi.GPU
	Fabric *Fabric `json:"fabric,omitempty"` // nil: not told
}

// Fabric states, NVML_GPU_FABRIC_STATE_….
const (
	FabricNotSupported = 0
	FabricNotStarted   = 1
	FabricInProgress   = 2
	FabricCompleted    = 3
)

// Fabric is a GPU's registration with the NVSwitches of its system, which the fabric manager does. Without it NVML is
// content and CUDA fails with error 802 (system not yet initialized).
type Fabric struct {
	State  int    `json:"state"`
	Status *Error `json:"status,omitempty"` // why a completed registration has failed
	Health uint32 `json:"health,omitempty"` // NVML_GPU_FABRIC_HEALTH_MASK_…
}

// Peer is one other GPU as seen from a GPU. Level is nvidia-smi's name of what the two have in common: X, NV#, PIX,
// PXB, PHB, NODE, SYS; P2P its name of what peer access comes to: OK, CNS, GNS, TNS, DR, NS, U. "" is not told.
type Peer struct {
	Level string `json:"level,omitempty"`
	P2P   string `json:"p2p,omitempty"`
}

// Condition is what a GPU tells of its own defects. A nil pointer is not told.
type Condition struct {
	ECCUncorrectable *uint64 `json:"ecc_uncorrectable,omitempty"` // volatile: since the driver was loaded or the GPU reset
	RemapPending     bool    `json:"remap_pending,omitempty"`
	RemapFailure     bool    `json:"remap_failure,omitempty"`
	// RecoveryAction is one of the Recover constants, or newer; nil: the driver does not tell.
	RecoveryAction *int   `json:"recovery_action,omitempty"`
	Odd            *Error `json:"odd,omitempty"` // an answer no well GPU gives
}

// What the driver says is to be done about a GPU's defects, NVML_GPU_RECOVERY_ACTION_….
const (
	RecoverNone          = 0
	RecoverReset         = 1
	RecoverReboot        = 2
	RecoverDrainP2P      = 3
	RecoverDrainAndReset = 4
)

// DefaultPower asks for the power limit that the GPU was made for.
const DefaultPower = -1

// Power is a GPU's power limit.
type Power struct {
	LimitMW int64 `json:"limit_mw"`
}

// Use is who uses a GPU's memory.
type Use struct {
	MemUsed int64 `json:"mem_used"` // bytes, without what the driver reserves
	// Shared: the memory is the system's as well (Grace, DGX Spark), so that MemUsed says nothing of who has left.
	Shared    bool      `json:"shared,omitempty"`
	Processes []Process `json:"processes"`
}

// Process holds a context on the GPU.
type Process struct {
	PID     int   `json:"pid"`
	MemUsed int64 `json:"mem_used"` // bytes; 0 where not told
}

// Event is something that happened by itself. An Xid names its GPU; Lost says that some GPU was lost, not which.
type Event struct {
	GPU  string `json:"gpu,omitempty"`
	Xid  int    `json:"xid,omitempty"`
	Lost bool   `json:"lost,omitempty"`
}

// Sample and GPU are agentapi's: what the probe measures travels on unchanged.
type (
	Sample = agentapi.GPUSample
	GPU    = agentapi.GPU
)
