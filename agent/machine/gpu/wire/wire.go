// Package wire is the protocol between the agent and its probe child: one JSON object per line, requests from the
// agent, answers and events from the probe. Answers may come in any order: a request that hangs in the driver delays no
// other.
package wire

import (
	"encoding/json"
	"fmt"

	"github.com/musterhq/muster/internal/agentapi"
)

// MaxLine is the longest line in bytes.
const MaxLine = 4 << 20

// Methods of the probe. All but the first three are about one GPU.
const (
	MethodPing      = "ping"      // → null, from the probe itself, without a driver call
	MethodStart     = "start"     // → null, once NVML has started: later hangs are caused by a GPU
	MethodSystem    = "system"    // → System
	MethodDescribe  = "describe"  // → Description
	MethodPeers     = "peers"     // → []Peer, of every GPU by index
	MethodSample    = "sample"    // → agentapi.GPUSample
	MethodCondition = "condition" // → Condition
	MethodUse       = "use"       // → Use
	MethodPower     = "power"     // → Power, after it was set to Milliwatts
	MethodRemake    = "remake"    // → Instance, after it was destroyed and recreated like Like
	MethodReset     = "reset"     // → null, after the GPU was reset
)

// Request is a request to the probe.
type Request struct {
	ID     uint64 `json:"id"` // from 1
	Method string `json:"method"`
	GPU    string `json:"gpu,omitempty"` // UUID
	PCI    string `json:"pci,omitempty"` // last known place of the GPU; the probe looks there first
	// Milliwatts is the power limit to set, or DefaultPower.
	Milliwatts int64 `json:"mw,omitempty"`
	// Like is what MethodRemake makes. GPU is then the GPU whose slice it is.
	Like *Instance `json:"like,omitempty"`
	// Trial marks a check that the driver answers at all: a missing answer is no evidence against any GPU.
	Trial bool `json:"-"`
}

// Message is a message of the probe: the answer to the request ID, or with ID 0 an event.
type Message struct {
	ID     uint64          `json:"id,omitempty"`
	Result json.RawMessage `json:"result,omitempty"`
	Error  *Error          `json:"error,omitempty"`
	Event  *Event          `json:"event,omitempty"`
}

// NVML return codes on which the agent acts.
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

// Error is NVML's refusal. Code 0 is the probe's own: a request that it does not understand.
type Error struct {
	Code int    `json:"code"` // nvmlReturn_t
	Call string `json:"call"` // NVML function
	Text string `json:"text"`
	// Lookup is true if the GPU was not found, which another GPU may have caused. It is no evidence against the GPU of the
	// request.
	Lookup bool `json:"lookup,omitempty"`
}

func (e *Error) Error() string { return fmt.Sprintf("%s: %s (%d)", e.Call, e.Text, e.Code) }

// System is the driver, and the devices that it lists.
type System struct {
	Driver    string   `json:"driver"`
	CUDA      string   `json:"cuda"` // highest supported, "12.4"
	NVML      string   `json:"nvml"`
	Library   string   `json:"library,omitempty"` // file that the probe has loaded
	Simulated bool     `json:"simulated"`
	Devices   []Device `json:"devices"`
}

// Device is one index of the driver's list. If its handle is not available, it has the error instead of its names.
type Device struct {
	Index int    `json:"index"`
	UUID  string `json:"uuid,omitempty"`
	PCI   string `json:"pci,omitempty"`
	Error *Error `json:"error,omitempty"`
	// Slices are the UUIDs of the slices that can be rented, if the GPU is split. Shared is how many parts cannot: they
	// share the memory of a GPU instance with others.
	Slices []string `json:"slices,omitempty"`
	Shared int      `json:"shared,omitempty"`
}

// UUIDs returns the UUID of the device and those of its slices.
func (d Device) UUIDs() []string {
	if d.UUID == "" {
		return nil
	}
	return append([]string{d.UUID}, d.Slices...)
}

// Description is a GPU without its health, and facts that only the agent needs.
type Description struct {
	agentapi.GPU
	Fabric   *Fabric   `json:"fabric,omitempty"`   // nil: not reported
	Instance *Instance `json:"instance,omitempty"` // of a slice
	// Coherent is true if the GPU and the processor share their memory (Grace, DGX Spark).
	Coherent bool `json:"coherent,omitempty"`
}

// Instance is a slice as NVML knows it: a GPU instance with one compute instance, which takes up all of it. ID and the
// UUID may change when it is recreated.
type Instance struct {
	UUID           string `json:"uuid"`
	ID             int    `json:"id"`              // of the GPU instance
	ComputeID      int    `json:"compute_id"`      // of the compute instance in it
	Profile        uint32 `json:"profile"`         // of the GPU instance
	ComputeProfile uint32 `json:"compute_profile"` //
	Start          uint32 `json:"start"`           // where it is in the GPU's memory
	Size           uint32 `json:"size"`
}

// Fabric states, NVML_GPU_FABRIC_STATE_….
const (
	FabricNotSupported = 0
	FabricNotStarted   = 1
	FabricInProgress   = 2
	FabricCompleted    = 3
)

// Fabric is a GPU's registration with the NVSwitches of its system, which the fabric manager performs. Without it NVML
// reports nothing wrong and CUDA fails with error 802 (system not yet initialized).
type Fabric struct {
	State  int    `json:"state"`
	Status *Error `json:"status,omitempty"` // why a completed registration has failed
	Health uint32 `json:"health,omitempty"` // NVML_GPU_FABRIC_HEALTH_MASK_…
	// Cluster and Clique are clusterUuid, 32 hexadecimal digits, and cliqueId; "" and 0 within one machine.
	Cluster string `json:"cluster,omitempty"`
	Clique  uint32 `json:"clique,omitempty"`
}

// Ready reports whether the registration is complete, so that CUDA starts.
func (f Fabric) Ready() bool { return f.State == FabricCompleted && f.Status == nil }

// FabricHealth is the mask NVML_GPU_FABRIC_HEALTH_MASK_…: two bits a question, of which 1 means yes, and four bits
// for how the fabric is configured, of which 0 (not reported) and 1 are right.
type FabricHealth uint32

// Where the questions are in the mask.
const (
	FabricDegraded       = 0 // _SHIFT_DEGRADED_BW
	FabricRecovering     = 2 // _SHIFT_ROUTE_RECOVERY
	FabricUnhealthy      = 4 // _SHIFT_ROUTE_UNHEALTHY
	FabricTimeouts       = 6 // _SHIFT_ACCESS_TIMEOUT_RECOVERY
	FabricConfiguration  = 8 // _SHIFT_INCORRECT_CONFIGURATION
	FabricYes            = 1 // _DEGRADED_BW_TRUE and the others' _TRUE
	FabricConfiguredWell = 1 // _INCORRECT_CONFIGURATION_NONE
)

// Faults returns what is wrong, for people.
func (h FabricHealth) Faults() (out []string) {
	for _, x := range []struct {
		shift int
		text  string
	}{
		{FabricDegraded, "degraded bandwidth"}, {FabricRecovering, "a route is being recovered"},
		{FabricUnhealthy, "an unhealthy route"}, {FabricTimeouts, "recovery from access timeouts"},
	} {
		if h>>x.shift&3 == FabricYes {
			out = append(out, x.text)
		}
	}
	if c := h >> FabricConfiguration & 0xf; c > FabricConfiguredWell {
		out = append(out, fmt.Sprintf("incorrect configuration (%d)", c))
	}
	return out
}

// Peer is one other GPU as seen from a GPU. Level is nvidia-smi's name of what the two have in common: X, NV#, PIX,
// PXB, PHB, NODE, SYS. P2P is its name of whether peer access works: OK, CNS, GNS, TNS, DR, NS, U. "" means not
// reported.
type Peer struct {
	Level string `json:"level,omitempty"`
	P2P   string `json:"p2p,omitempty"`
}

// Condition is what a GPU reports of its own defects. A nil pointer means not reported.
type Condition struct {
	ECCUncorrectable *uint64 `json:"ecc_uncorrectable,omitempty"` // volatile: since the driver was loaded or the GPU reset
	// Uncorrectable are the uncorrectable errors since the driver was loaded, by the part of the chip, of GPUs that count
	// them so.
	Uncorrectable map[string]uint64 `json:"uncorrectable,omitempty"`
	RemapPending  bool              `json:"remap_pending,omitempty"`
	RemapFailure  bool              `json:"remap_failure,omitempty"`
	// RetirePending and RetireFailed are how many bad pages of the memory wait to be taken out of use, and could not be.
	RetirePending int `json:"retire_pending,omitempty"`
	RetireFailed  int `json:"retire_failed,omitempty"`
	// RecoveryAction is one of the Recover constants, or newer; nil: the driver does not report it.
	RecoveryAction *int   `json:"recovery_action,omitempty"`
	Odd            *Error `json:"odd,omitempty"` // an answer that no healthy GPU gives
	// NVLinksUp is how many of the GPU's NVLinks work; nil: it has none.
	NVLinksUp *int `json:"nvlinks_up,omitempty"`
	// FabricHealth is what the NVSwitches report of a registered GPU, NVML_GPU_FABRIC_HEALTH_MASK_…; 0: nothing.
	FabricHealth FabricHealth `json:"fabric_health,omitempty"`
	Fabric       *Fabric      `json:"fabric,omitempty"` // nil: not reported
	// Unknown are calls that not every GPU supports and that this one answered with an unknown error, which some give in
	// place of "not supported". Answered are those of them that it did answer.
	Unknown  []Error  `json:"unknown,omitempty"`
	Answered []string `json:"answered,omitempty"`
}

// Actions that the driver recommends for a GPU's defects, NVML_GPU_RECOVERY_ACTION_….
const (
	RecoverNone          = 0
	RecoverReset         = 1
	RecoverReboot        = 2
	RecoverDrainP2P      = 3
	RecoverDrainAndReset = 4
	RecoverIMEX          = 5 // of the hosts whose GPUs share memory over NVLink, not of the GPU
)

// Bits of nvmlClocksEventReasons, and the names by which telemetry carries them.
const (
	ClocksGPUIdle           = 0x001
	ClocksApplications      = 0x002
	ClocksSWPowerCap        = 0x004
	ClocksHWSlowdown        = 0x008
	ClocksSyncBoost         = 0x010
	ClocksSWThermalSlowdown = 0x020
	ClocksHWThermalSlowdown = 0x040
	ClocksHWPowerBrake      = 0x080
	ClocksDisplay           = 0x100
	HWSlowdown              = "hw_slowdown"
	HWThermalSlowdown       = "hw_thermal_slowdown"
	HWPowerBrake            = "hw_power_brake_slowdown"
)

var clocksReasons = []struct {
	bit  uint64
	name string
}{
	{ClocksGPUIdle, "gpu_idle"}, {ClocksApplications, "applications_clocks_setting"}, {ClocksSWPowerCap, "sw_power_cap"},
	{ClocksHWSlowdown, HWSlowdown}, {ClocksSyncBoost, "sync_boost"}, {ClocksSWThermalSlowdown, "sw_thermal_slowdown"},
	{ClocksHWThermalSlowdown, HWThermalSlowdown}, {ClocksHWPowerBrake, HWPowerBrake},
	{ClocksDisplay, "display_clock_setting"},
}

// ClocksReasons returns the names of the reasons in a mask, in the order of their bits. Bits that nvml.h does not name
// are omitted.
func ClocksReasons(mask uint64) []string {
	var names []string
	for _, r := range clocksReasons {
		if mask&r.bit != 0 {
			names = append(names, r.name)
		}
	}
	return names
}

// DefaultPower requests the GPU's default power limit.
const DefaultPower = -1

// Power is a GPU's power limit.
type Power struct {
	LimitMW int64 `json:"limit_mw"`
}

// Use is the present use of a GPU's memory.
type Use struct {
	MemUsed int64 `json:"mem_used"` // bytes, without what the driver reserves
	// Shared is true if the memory is also the system's (Grace, DGX Spark), so that MemUsed does not show whether a
	// process has left.
	Shared    bool      `json:"shared,omitempty"`
	Processes []Process `json:"processes"`
}

// Process is a process that holds a context on the GPU.
type Process struct {
	PID     int   `json:"pid"`
	MemUsed int64 `json:"mem_used"` // bytes; 0 if not reported
}

// Event is an event that no request caused. An Xid names its GPU; Lost means that some GPU was lost, not which.
type Event struct {
	GPU string `json:"gpu,omitempty"`
	Xid int    `json:"xid,omitempty"`
	// Instance is the GPU instance in which it happened; nil: the whole GPU.
	Instance *int `json:"instance,omitempty"`
	Lost     bool `json:"lost,omitempty"`
}

// Sample and GPU are agentapi's types: what the probe measures is passed on unchanged.
type (
	Sample = agentapi.GPUSample
	GPU    = agentapi.GPU
)
