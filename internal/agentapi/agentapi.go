// Package agentapi is the language between the control plane and the host agents: messages, subjects, enrolment.
//
// Everything an agent sends may arrive twice, late or out of order, and nothing it says is trusted beyond what it
// signs: identity comes from the subject the connection may publish on. Messages are JSON. Times named …MS are unix
// milliseconds on the server's (PostgreSQL's) clock unless the name says Boot, then milliseconds of the host's
// CLOCK_BOOTTIME within the named boot.
package agentapi

import (
	"fmt"
	"strings"
)

// Protocol is this wire format's number. A server of protocol N accepts agents of N−1 and N. An agent of protocol N
// names N−1 to a server that refuses N, see SyncReply.Protocol.
//
// Protocol 2 added Segment.Facts, LeaseStatus.GoodSinceBootMS and LeaseStatus.PeersDownSince.
const Protocol = 2

// OldestRented is the oldest protocol whose hosts get new leases. Hosts of older ones, and of agents that name none,
// keep the leases they have: their reports and their usage count as ever. Rises to Protocol − 1 at most, or a server's
// upgrade would empty the market.
const OldestRented = 1

// What a host may publish on, and what it listens to. host is the prefixed id, "host_…".
func SubjectInventory(host string) string { return "host." + host + ".inventory" } // request: Inventory → Ack
func SubjectSync(host string) string      { return "host." + host + ".sync" }      // request: Sync → SyncReply
func SubjectTelemetry(host string) string { return "host." + host + ".telemetry" } // publish: Telemetry
func SubjectWake(host string) string      { return "host." + host + ".wake" }      // receive: Wake
func SubjectDial(host string) string      { return "host." + host + ".dial" }      // receive: Dial
func InboxPrefix(host string) string      { return "host." + host + ".in" }        // replies: InboxPrefix + ".>"

// ConnectionName is what an agent calls its NATS connection. instance is random per run of the agent and never stored:
// by it the server tells an agent that reconnects from a copy of the host that presents the same key.
func ConnectionName(instance string) string { return connectionName + instance }

// InstanceOf is the inverse of ConnectionName, "" for any other name.
func InstanceOf(name string) string {
	instance, ok := strings.CutPrefix(name, connectionName)
	if !ok {
		return ""
	}
	return instance
}

const connectionName = "muster-agent/"

// Ack answers a request that needs nothing else. Error is empty or a sentence for the agent's log.
type Ack struct {
	Error   string `json:"error,omitempty"`
	RetryMS int64  `json:"retry_ms,omitempty"` // set: the request was one too many and was not read, see TooMany
}

// Wake tells an agent to sync now. It may be lost; Revision is the one the host should end up with.
type Wake struct {
	Revision int64 `json:"revision"`
	Watch    bool  `json:"watch,omitempty"` // somebody watches: send telemetry every second for a minute
}

// Sync is one idempotent report. The agent sends it every 15 s while leased, 60 s (jittered) when idle, and at once
// when something changed.
type Sync struct {
	Protocol     int    `json:"protocol"`
	AgentVersion string `json:"agent_version"`
	BootID       string `json:"boot_id"` // kernel's; an agent restart is not a new boot
	BootMS       int64  `json:"boot_ms"` // CLOCK_BOOTTIME when this was sent
	ControlEpoch int64  `json:"control_epoch"`
	Revision     int64  `json:"revision"` // highest desired state seen
	// Full means Leases lists every lease-labelled container, overlay and lease folder on the host: what is not
	// listed is gone. The first sync of a connection and every sync after a change of the set is full.
	Full     bool          `json:"full"`
	Leases   []LeaseStatus `json:"leases"`
	Segments []Segment     `json:"segments,omitempty"` // oldest first, ≤ MaxSegments
	// SegmentsSignature signs Segments as a list, from MinBatch on: Ed25519 by the host's attestation key over
	// BatchPayload. The segments' own signatures are for servers that do not know it, and for when it does not hold.
	SegmentsSignature []byte        `json:"segments_signature,omitempty"`
	Health            []HealthEvent `json:"health,omitempty"`
	Seq               uint64        `json:"seq"` // of this report, for StatusAck
	// Capabilities are what the agent can do beyond its protocol, by the Cap constants; Update is how it stands with the
	// version it should run, nil where it cannot update itself.
	Capabilities []string      `json:"capabilities,omitempty"`
	Update       *UpdateStatus `json:"update,omitempty"`
	// Pulled is what the host has received of images. Nil: nothing new since a report that was taken, or the agent does
	// not count it.
	Pulled *Pulled `json:"pulled,omitempty"`
	// EngineAway is set while the host's container engine does not answer. Nil: it answers, or the agent does not watch
	// it.
	EngineAway *EngineAway `json:"engine_away,omitempty"`
}

// EngineAway says that a host's container engine does not answer. The host gets no new leases until a full report
// without it.
type EngineAway struct {
	Detail string `json:"detail"` // the error, at most 500 bytes; for the host's operator only
}

// Pulled counts what a host received from registries at public addresses, for leases and ahead of them, whether or not
// an image came of it. It only rises, over restarts of the agent and of the host.
type Pulled struct {
	Counter string `json:"counter"` // names its beginning; another name is another counter, that began at 0; 1 to 64 bytes
	Bytes   int64  `json:"bytes"`
}

// MaxSegments is how many segments one Sync may carry.
const MaxSegments = 200

// SyncReply holds three separate acknowledgements: a report may be taken while its segments are not (the database was
// busy) and the other way round.
type SyncReply struct {
	Protocol     int              `json:"protocol,omitempty"` // the server's; 0: it is of protocol 1
	Error        string           `json:"error,omitempty"`    // the whole sync was refused, why
	RetryMS      int64            `json:"retry_ms,omitempty"` // set with Error: one sync too many, not read, see TooMany
	ControlEpoch int64            `json:"control_epoch"`
	Revision     int64            `json:"revision"`              // the host's current revision
	Desired      *Desired         `json:"desired,omitempty"`     // only when newer than Sync.Revision
	StatusAck    uint64           `json:"status_ack"`            // Sync.Seq when the statuses are committed, else 0
	UsageAcks    []UsageAck       `json:"usage_acks,omitempty"`  // committed or for ever refused: the journal may let go
	HealthAck    uint64           `json:"health_ack"`            // highest HealthEvent.Seq committed
	Extensions   []LeaseExtension `json:"extensions,omitempty"`  // current run_until of every live lease of the host
	Anchor       *Anchor          `json:"anchor,omitempty"`      // a new time anchor for Sync.BootID
	LogsStored   []LeaseRef       `json:"logs_stored,omitempty"` // kept logs that may be deleted now
	NextSyncMS   int64            `json:"next_sync_ms,omitempty"`
	// Popular are public images, by their names in full and the most popular first, that a host without leases may fetch
	// ahead of time.
	Popular []string `json:"popular,omitempty"`
	// PopularBytes is how much may come over the host's line for them from now on, all together; 0: the line has no cap.
	PopularBytes int64        `json:"popular_bytes,omitempty"`
	Update       *UpdateOrder `json:"update,omitempty"` // the version the host should run, where it should be another
	// TelemetryLost is how many of the host's telemetry messages were too many and are lost, since the last time it was
	// said.
	TelemetryLost int64 `json:"telemetry_lost,omitempty"`
}

// LeaseRef names one run of a lease.
type LeaseRef struct {
	Lease string `json:"lease"`
	Epoch int    `json:"epoch"`
}

func (r LeaseRef) String() string { return fmt.Sprintf("%s/e%d", r.Lease, r.Epoch) }

// LeaseExtension is how long a lease may run on. The agent stops the workload at RunUntilMS unless it was extended;
// 0 means not limited yet (provisioning: the server's deadlines hold).
type LeaseExtension struct {
	LeaseRef
	RunUntilMS int64 `json:"run_until_ms"`
	// RelayToken replaces Network.RelayToken: it opens the relays for as long as the lease may run by RunUntilMS, and a
	// while more. "" leaves what the host has. Secret.
	RelayToken string `json:"relay_token,omitempty"`
}

// Anchor ties a boot's clock to the server's. Numbered from 1 per (host, boot), immutable.
type Anchor struct {
	BootID   string `json:"boot_id"`
	Number   int64  `json:"number"`
	BootMS   int64  `json:"boot_ms"`
	ServerMS int64  `json:"server_ms"`
}

// At maps a moment of the anchor's boot to the server's clock.
func (a Anchor) At(bootMS int64) int64 { return a.ServerMS + bootMS - a.BootMS }

// NodeState is what a host reports of one lease, in the order of a start. The names are the REST API's node states;
// the host never reports pending, lost.
type NodeState string

const (
	NodePulling  NodeState = "pulling"
	NodeStarting NodeState = "starting" // guest, overlay
	NodeJoining  NodeState = "joining"  // peers, preflight, workload up to its barrier
	NodeReady    NodeState = "ready"    // at the barrier, or running once Started
	NodeStopping NodeState = "stopping"
	NodeStopped  NodeState = "stopped"
	NodeFailed   NodeState = "failed"
)

// LeaseStatus is what a host says of one lease epoch.
type LeaseStatus struct {
	LeaseRef
	State  NodeState `json:"state"`
	Reason string    `json:"reason,omitempty"` // see the Reason constants
	Detail string    `json:"detail,omitempty"` // for people; ≤ 500 bytes; never a secret
	// Progress of the present step.
	Progress Progress `json:"progress"`
	// WGKey and Endpoints appear once the overlay stands: the base64 WireGuard public key made on the host, and
	// host:port addresses it can be reached at, best first.
	WGKey     string     `json:"wg_key,omitempty"`
	Endpoints []string   `json:"endpoints,omitempty"`
	Preflight *Preflight `json:"preflight,omitempty"` // once it ended
	// ImageDigest is what was pulled: sha256:….
	ImageDigest string `json:"image_digest,omitempty"`
	// AtBarrier: the workload is created, started and waits for its release.
	AtBarrier bool `json:"at_barrier,omitempty"`
	// Started: the barrier was released for this epoch and the command is running (or has run).
	Started bool `json:"started,omitempty"`
	// StartBootMS is when the command began, by the CLOCK_BOOTTIME of the report's boot; 0: not known.
	StartBootMS int64 `json:"start_boot_ms,omitempty"`
	// Good: at this report the workload ran, its GPUs were healthy, its overlay and guest stood. It moves
	// confirmed_until; a lease that is not good is not billed.
	Good bool `json:"good,omitempty"`
	// GoodSinceBootMS is since when Good has been true without interruption, by the CLOCK_BOOTTIME of the report's boot;
	// 0: it is not good, or the agent does not know.
	GoodSinceBootMS int64 `json:"good_since_boot_ms,omitempty"`
	// Trouble is why a node that has started is not good, by the Reason constants; TroubleDetail says it for people, ≤ 500
	// bytes. Empty: it is good, or the agent does not know.
	Trouble       string `json:"trouble,omitempty"`
	TroubleDetail string `json:"trouble_detail,omitempty"`
	// StartsAgain: the node died of Trouble before anything of the renter's ran, and is started again in this epoch. Until
	// it tells a WGKey again nobody can reach it.
	StartsAgain bool `json:"starts_again,omitempty"`
	// PeersDown lists ranks whose overlay was silent for longer than PeerSilence, as this host's overlay sees it.
	PeersDown []int `json:"peers_down,omitempty"`
	// PeersDownSince says of ranks in PeersDown when the last byte came from them. Agents of protocol 1 do not send it.
	PeersDownSince []PeerDown `json:"peers_down_since,omitempty"`
	// Paths are how this host's overlay reaches the other ranks, where it knows.
	Paths    []PeerPath `json:"paths,omitempty"`
	ExitCode *int       `json:"exit_code,omitempty"` // once the command ended by itself
	// ExitBootMS is when, by the CLOCK_BOOTTIME of the report's boot; 0: not known.
	ExitBootMS int64 `json:"exit_boot_ms,omitempty"`
	// LogKept: the run has ended and its log waits in the lease folder to be stored by the server.
	LogKept bool `json:"log_kept,omitempty"`
	// Gone: nothing of the lease is left on the host but its kept log and journal.
	Gone bool `json:"gone,omitempty"`
	// Traffic is what the run did on the host's own line and the overlay so far. Nil: nothing new since a report that was
	// taken.
	Traffic *Traffic `json:"traffic,omitempty"`
	// OwnerMB is how much memory of the run's GPUs programs of the host's own took, MB of 2²⁰ bytes, when they began to
	// use more of it than at the run's start. For the renter to know; nothing is decided by it.
	OwnerMB int64 `json:"owner_mb,omitempty"`
}

// Traffic is what a run did on the host's own line to the internet, for the operator, from whose address it went, and
// for reports of abuse; and what it exchanged with the cluster's other ranks. Sums since the run began; they only rise.
type Traffic struct {
	Opened int64 `json:"opened"` // connections tried, allowed or over a bound
	// packets to where no lease may: private networks, metadata, mail, ports its egress has not
	Refused int64 `json:"refused"`
	Up      int64 `json:"up_bytes"`   // sent, the overlay aside
	Down    int64 `json:"down_bytes"` // received, the overlay aside
	// What the overlay exchanged over the line, with ranks outside the host's networks or through relays; an agent that
	// does not count it says 0.
	OverlayUp   int64 `json:"overlay_up_bytes,omitempty"`
	OverlayDown int64 `json:"overlay_down_bytes,omitempty"`
	// What the overlay exchanged by whichever way, the line included.
	RanksSent     int64 `json:"ranks_sent_bytes,omitempty"`
	RanksReceived int64 `json:"ranks_received_bytes,omitempty"`
}

// PeerPath is how a node's overlay reaches another rank.
type PeerPath struct {
	Rank int    `json:"rank"`
	Path string `json:"path"` // lan, direct, punched, relay; "" when nothing answers
	MTU  int    `json:"mtu,omitempty"`
}

// PeerDown is a rank from which nothing is heard.
type PeerDown struct {
	Rank        int   `json:"rank"`
	SinceBootMS int64 `json:"since_boot_ms"` // CLOCK_BOOTTIME of the report's boot when the last byte came
}

// PeerSilenceMS is after how long without bytes from a peer its overlay counts as down (keepalives come every 2 s).
const PeerSilenceMS = 7000

// Progress of a step, for people. Zero fields are not known.
type Progress struct {
	// "manifest", "layers", "unpack", "scratch", "guest", "overlay", "peers", "preflight", "workload"
	Step       string  `json:"step,omitempty"`
	Done       int64   `json:"done,omitempty"` // bytes, for layers
	Total      int64   `json:"total,omitempty"`
	Layers     []Layer `json:"layers,omitempty"`
	WaitingFor string  `json:"waiting_for,omitempty"` // the cause of a delay in words: "rank 1 has not joined"
}

// Layer is one image layer's download.
type Layer struct {
	Digest string `json:"digest"` // sha256:… first 12 hex
	Done   int64  `json:"done"`
	Total  int64  `json:"total"`
	Cached bool   `json:"cached,omitempty"`
}

// Preflight is what a rank measured over the overlay before the workload started.
type Preflight struct {
	OK        bool      `json:"ok"`
	Detail    string    `json:"detail,omitempty"`    // why not
	BusbwGbps float64   `json:"busbw_gbps"`          // ring all-reduce: S/t·2(n−1)/n, gigabits per second; 0 for one node
	Bytes     int64     `json:"bytes"`               // S
	Seconds   float64   `json:"seconds"`             // t
	RTTMicros []float64 `json:"rtt_us,omitempty"`    // median round trip to each rank, own rank 0
	PairGbps  []float64 `json:"pair_gbps,omitempty"` // to each rank, own rank 0; empty when not measured
}

// Reasons a host gives. Those shared with the REST API have its names.
const (
	ReasonImageNotFound     = "image_not_found"
	ReasonImageUnauthorized = "image_unauthorized"
	ReasonImageRefused      = "image_refused"          // malformed, or from an address that is not pulled from
	ReasonImageTooBig       = "image_too_big"          // for the node's disk_gb
	ReasonImageWrongArch    = "image_wrong_arch"       // made for another processor
	ReasonImageNewerCUDA    = "image_needs_newer_cuda" // than the host's driver supports
	ReasonRegistryAway      = "registry_unreachable"   // tried for a minute
	ReasonRegistrySlow      = "registry_too_slow"      // less than 1 MB/s over two minutes of waiting for it
	ReasonNoDisk            = "no_disk"
	ReasonCommandNotFound   = "command_not_found"
	ReasonPreflightFailed   = "preflight_failed"
	ReasonHostInterrupted   = "host_interrupted" // the container was ended by the host's own trouble
	ReasonGPUFailed         = "gpu_failed"
	ReasonGPUInUse          = "gpu_in_use"     // by the host's owner, when the node was to start
	ReasonRuntimeFailed     = "runtime_failed" // Docker refused
	// the host has no more what it was chosen for: a runtime, a bound on its disk, scratch
	ReasonNotOffered    = "not_offered"
	ReasonScratchFailed = "scratch_failed" // no scratch could be made, however often it was tried
	ReasonOverlayFailed = "overlay_failed"
	ReasonGuestDied     = "guest_died"
	ReasonRunUntil      = "run_until" // stopped by itself at the end of the authorised time
	ReasonExited        = "exited"    // the command ended; see ExitCode
	ReasonSuperseded    = "superseded"
)

// Desired is everything a host should run: level-triggered, never a delta. A lease that is not listed must be stopped
// and wiped.
type Desired struct {
	ControlEpoch int64       `json:"control_epoch"`
	Revision     int64       `json:"revision"`
	Leases       []LeaseSpec `json:"leases"`
}

// LeaseSpec is one node to run.
type LeaseSpec struct {
	LeaseRef
	Cluster string `json:"cluster"`
	Node    string `json:"node"`
	Rank    int    `json:"rank"`
	Nodes   int    `json:"nodes"`
	// Go releases the barrier of this epoch. It never goes back to false within an epoch.
	Go bool `json:"go"`

	Image        string        `json:"image"` // reference as the renter wrote it
	Digest       string        `json:"digest,omitempty"`
	RegistryAuth *RegistryAuth `json:"registry_auth,omitempty"`
	// in place of the image's own, after its entry point, as `docker run` does
	Command []string          `json:"command,omitempty"`
	Env     map[string]string `json:"env,omitempty"` // the renter's; only ever put into the create request

	GPUs   []string `json:"gpus"` // NVML UUIDs
	CPUs   float64  `json:"cpus"`
	RAMMB  int64    `json:"ram_mb"`
	DiskGB int64    `json:"disk_gb"`
	// DiskLimited: the node runs only where disk_gb is enforced. Runtime is the OCI runtime of the workload, "" = runc.
	DiskLimited bool   `json:"disk_limited,omitempty"`
	Runtime     string `json:"runtime,omitempty"`
	// GB of 10⁹ bytes at /scratch, the node's own; only for agents with CapScratch
	ScratchGB int64   `json:"scratch_gb,omitempty"`
	Ports     []Port  `json:"ports,omitempty"`
	Egress    string  `json:"egress"` // full, limited, off
	Network   Network `json:"network"`

	RunUntilMS int64 `json:"run_until_ms"` // 0 = not limited yet
	GraceS     int   `json:"grace_s"`      // TERM to KILL, ≤ 30
}

// ScratchPath is where a workload finds its scratch.
const ScratchPath = "/scratch"

// RegistryAuth opens a private registry. Secret: never logged, never in labels.
type RegistryAuth struct {
	Username string `json:"username"`
	Password string `json:"password"`
}

// Port is one port of the workload the renter wants to reach.
type Port struct {
	Port     int    `json:"port"`
	Protocol string `json:"protocol"` // http, tcp
}

// Network is the cluster's overlay. Every cluster uses the same range; rank n has base + n + 1.
type Network struct {
	CIDR    string  `json:"cidr"`    // 10.77.0.0/20
	Address string  `json:"address"` // this rank's
	MTU     int     `json:"mtu"`
	MinGbps float64 `json:"min_gbps,omitempty"` // preflight below it fails
	Peers   []Peer  `json:"peers"`              // all other ranks; Key and Endpoints empty until known
	// Relays carry what goes no other way, host:port each, best first. RelayToken opens them until a while past the
	// lease's run_until, and is renewed as that moves: see LeaseExtension. Secret.
	Relays     []string `json:"relays,omitempty"`
	RelayToken string   `json:"relay_token,omitempty"`
}

// Peer is another rank.
type Peer struct {
	Rank      int      `json:"rank"`
	Address   string   `json:"address"`
	Key       string   `json:"key,omitempty"`
	Endpoints []string `json:"endpoints,omitempty"`
}

// HealthEvent is a change of a GPU's health. Seq rises per host and survives restarts.
type HealthEvent struct {
	Seq uint64 `json:"seq"`
	GPU string `json:"gpu"` // NVML UUID
	// xid, lost, ecc, row_remap, off_bus, recovery_action, hang, driver_error, memory_held, recovered
	Kind   string `json:"kind"`
	Xid    int    `json:"xid,omitempty"`
	State  string `json:"state"` // healthy, suspect, quarantined
	Detail string `json:"detail,omitempty"`
	BootID string `json:"boot_id"`
	BootMS int64  `json:"boot_ms"`
}

// Telemetry is a batch of samples: every second while somebody watches, else every 10 s.
type Telemetry struct {
	Samples []GPUSample `json:"samples"`
}

// GPUSample is one reading of one GPU. A pointer is nil where the device does not tell.
type GPUSample struct {
	GPU      string `json:"gpu"`
	AtMS     int64  `json:"at_ms"`               // server's clock through the agent's anchor; 0 = none yet
	Util     *int   `json:"util,omitempty"`      // percent, DCGM_FI_DEV_GPU_UTIL
	MemUsed  *int64 `json:"mem_used,omitempty"`  // bytes, DCGM_FI_DEV_FB_USED
	MemTotal *int64 `json:"mem_total,omitempty"` // bytes
	PowerMW  *int64 `json:"power_mw,omitempty"`  // milliwatts, DCGM_FI_DEV_POWER_USAGE
	TempC    *int   `json:"temp_c,omitempty"`    // DCGM_FI_DEV_GPU_TEMP
	EnergyMJ *int64 `json:"energy_mj,omitempty"` // DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION
}
