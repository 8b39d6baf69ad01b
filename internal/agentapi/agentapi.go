// Package agentapi is the wire protocol between the control plane and the host agents: messages, subjects, enrolment.
//
// Everything that an agent sends may arrive twice, late or out of order, and is trusted only as far as it is signed:
// the identity of a host comes from the subject that its connection may publish on. Messages are JSON. Times named …MS
// are unix milliseconds on the server's (PostgreSQL's) clock; if the name contains Boot they are milliseconds of the
// host's CLOCK_BOOTTIME within the named boot.
package agentapi

import (
	"fmt"
	"strings"
	"time"
)

// Protocol is the version of this wire format. A server of protocol N accepts agents of N−1 and N. An agent of protocol
// N sends N−1 to a server that refuses N; see SyncReply.Protocol.
//
// Protocol 2 added Segment.Facts, LeaseStatus.GoodSinceBootMS and LeaseStatus.PeersDownSince.
const Protocol = 2

// OldestRented is the oldest protocol whose hosts get new leases. Hosts with older agents, and with agents that send
// none, keep the leases they have: their reports and usage count as before. It must not exceed Protocol − 1, or a
// server's upgrade would empty the market.
const OldestRented = 1

// These are the subjects that a host may publish or subscribe to. host is the prefixed id, "host_…".
func SubjectInventory(host string) string { return "host." + host + ".inventory" } // request: Inventory → Ack
func SubjectSync(host string) string      { return "host." + host + ".sync" }      // request: Sync → SyncReply
func SubjectTelemetry(host string) string { return "host." + host + ".telemetry" } // publish: Telemetry
func SubjectWake(host string) string      { return "host." + host + ".wake" }      // receive: Wake
func SubjectDial(host string) string      { return "host." + host + ".dial" }      // receive: Dial
func InboxPrefix(host string) string      { return "host." + host + ".in" }        // replies: InboxPrefix + ".>"

// ConnectionName is the name of an agent's NATS connection. instance is random per run of the agent and never stored:
// it lets the server distinguish an agent that reconnects from a copy of the host that presents the same key.
func ConnectionName(instance string) string { return connectionName + instance }

// InstanceOf is the inverse of ConnectionName; it returns "" for any other name.
func InstanceOf(name string) string {
	instance, ok := strings.CutPrefix(name, connectionName)
	if !ok {
		return ""
	}
	return instance
}

const connectionName = "muster-agent/"

// Ack answers a request that needs no other reply. Error is empty or a sentence for the agent's log.
type Ack struct {
	Error   string `json:"error,omitempty"`
	RetryMS int64  `json:"retry_ms,omitempty"` // set if the request exceeded a limit and was not read; see TooMany
}

// Wake notifies an agent that the host's desired state has changed. It may be lost. Revision is the revision that the
// host should reach. An agent that gets no Desired asks for it with a sync.
type Wake struct {
	Revision int64 `json:"revision"`
	Watch    bool  `json:"watch,omitempty"` // a viewer is present: send telemetry every second for a minute
	// Desired is what the host should run at Revision, as in a SyncReply. It contains renters' secrets: only the host may
	// receive its subject, and it must not be logged. Only agents with CapWakeState get it, and only if it is small.
	Desired *Desired `json:"desired,omitempty"`
}

// Sync is one idempotent report. The agent sends it every 15 s while it has leases, every 60 s (jittered) when idle,
// and at once when something changed.
type Sync struct {
	Protocol     int    `json:"protocol"`
	AgentVersion string `json:"agent_version"`
	BootID       string `json:"boot_id"` // the kernel's boot id; an agent restart is not a new boot
	BootMS       int64  `json:"boot_ms"` // CLOCK_BOOTTIME when this was sent
	ControlEpoch int64  `json:"control_epoch"`
	Revision     int64  `json:"revision"` // newest revision of the desired state that was received
	// Full means that Leases lists every container, overlay and lease folder of a lease on the host: what is not listed is
	// gone. The first sync of a connection and every sync after a change of the set are full.
	Full     bool          `json:"full"`
	Leases   []LeaseStatus `json:"leases"`
	Segments []Segment     `json:"segments,omitempty"` // oldest first, ≤ MaxSegments
	// SegmentsSignature signs Segments as a list of at least MinBatch: Ed25519 by the host's attestation key over
	// BatchPayload. Servers that do not know it, or for which it does not verify, use the segments' own signatures.
	SegmentsSignature []byte        `json:"segments_signature,omitempty"`
	Health            []HealthEvent `json:"health,omitempty"`
	Seq               uint64        `json:"seq"` // number of this report, for StatusAck
	// Capabilities lists what the agent supports beyond its protocol (Cap constants). Update is the state of its update;
	// nil if it cannot update itself.
	Capabilities []string      `json:"capabilities,omitempty"`
	Update       *UpdateStatus `json:"update,omitempty"`
	// Pulled counts downloaded image data. It is nil if nothing changed since a report that was acknowledged, or if the
	// agent does not count it.
	Pulled *Pulled `json:"pulled,omitempty"`
	// EngineAway is set while the host's container engine does not respond. It is nil if the engine responds, or if the
	// agent does not watch it.
	EngineAway *EngineAway `json:"engine_away,omitempty"`
	// Requalified has the results of requests in Desired.Requalify that no reply has acknowledged yet.
	Requalified []GPUResult `json:"requalified,omitempty"`
	// Shared is what was measured of shared folders since a report that was acknowledged; at most MaxSharedUse.
	Shared []SharedUse `json:"shared,omitempty"`
}

// GPUOrder is an operator's request to reset a GPU without a lease, to check it and to put it back into service. Number
// rises with each request.
type GPUOrder struct {
	GPU    string `json:"gpu"` // NVML UUID
	Number int64  `json:"number"`
}

// GPUResult is the result of a GPUOrder. Error is why it could not be done, for people, at most 500 bytes; "" if the
// GPU is healthy.
type GPUResult struct {
	GPUOrder
	Error string `json:"error,omitempty"`
}

// EngineAway reports that a host's container engine does not respond. The host gets no new leases until it sends a full
// report without EngineAway.
type EngineAway struct {
	Detail string `json:"detail"` // the error, at most 500 bytes; for the host's operator only
}

// Pulled counts what a host received from registries at public addresses, for leases and as prefetches, whether or not
// a pull succeeded. It never decreases, also over restarts of the agent and of the host.
type Pulled struct {
	// identifies the counter; a new name means a new counter that began at 0; 1 to 64 bytes
	Counter string `json:"counter"`
	Bytes   int64  `json:"bytes"`
}

// MaxSegments is the greatest number of segments in one Sync.
const MaxSegments = 200

// SyncReply contains three separate acknowledgements: the server may accept a report but not its segments (because the
// database was busy), and the other way round.
type SyncReply struct {
	Protocol int    `json:"protocol,omitempty"` // the server's protocol; 0 means 1
	Error    string `json:"error,omitempty"`    // why the whole sync was refused
	// set with Error if the sync exceeded a limit and was not read; see TooMany
	RetryMS      int64    `json:"retry_ms,omitempty"`
	ControlEpoch int64    `json:"control_epoch"`
	Revision     int64    `json:"revision"`          // the host's current revision
	Desired      *Desired `json:"desired,omitempty"` // only if newer than Sync.Revision
	StatusAck    uint64   `json:"status_ack"`        // Sync.Seq if the statuses are committed, else 0
	// committed or permanently refused: the journal may remove them
	UsageAcks []UsageAck `json:"usage_acks,omitempty"`
	HealthAck uint64     `json:"health_ack"` // greatest HealthEvent.Seq that is committed
	// RequalifyAck is Sync.Seq if the report's Requalified is committed, else 0.
	RequalifyAck uint64 `json:"requalify_ack,omitempty"`
	// SharedAck is Sync.Seq if the report's Shared is committed, else 0.
	SharedAck  uint64           `json:"shared_ack,omitempty"`
	Extensions []LeaseExtension `json:"extensions,omitempty"`  // current run_until of every live lease of the host
	Anchor     *Anchor          `json:"anchor,omitempty"`      // a new time anchor for Sync.BootID
	LogsStored []LeaseRef       `json:"logs_stored,omitempty"` // stored logs that may be deleted now
	NextSyncMS int64            `json:"next_sync_ms,omitempty"`
	// Popular lists public images by complete name, most popular first, that a host without leases may prefetch.
	Popular []string `json:"popular,omitempty"`
	// PopularBytes limits how many bytes of them the host may download from now on, in total; 0: no limit.
	PopularBytes int64        `json:"popular_bytes,omitempty"`
	Update       *UpdateOrder `json:"update,omitempty"` // the version that the host should run, if it runs another
	// TelemetryLost is how many of the host's telemetry messages were dropped because there were too many, since the
	// previous reply that reported it.
	TelemetryLost int64 `json:"telemetry_lost,omitempty"`
}

// LeaseRef identifies one run of a lease.
type LeaseRef struct {
	Lease string `json:"lease"`
	Epoch int    `json:"epoch"`
}

func (r LeaseRef) String() string { return fmt.Sprintf("%s/e%d", r.Lease, r.Epoch) }

// LeaseExtension says how long a lease may continue to run. The agent stops the workload at RunUntilMS unless it was
// extended; 0 means that there is no limit yet (while provisioning, the server's deadlines apply).
type LeaseExtension struct {
	LeaseRef
	RunUntilMS int64 `json:"run_until_ms"`
	// RelayToken replaces Network.RelayToken: it opens the relays until a while after RunUntilMS. "" changes nothing.
	// Secret.
	RelayToken string `json:"relay_token,omitempty"`
}

// Anchor relates a boot's clock to the server's. Anchors are numbered from 1 per (host, boot) and immutable.
type Anchor struct {
	BootID   string `json:"boot_id"`
	Number   int64  `json:"number"`
	BootMS   int64  `json:"boot_ms"`
	ServerMS int64  `json:"server_ms"`
}

// At converts a moment of the anchor's boot to the server's clock.
func (a Anchor) At(bootMS int64) int64 { return a.ServerMS + bootMS - a.BootMS }

// NodeState is the state of one lease on a host, in the order of a start. The names are the REST API's node states;
// hosts never report pending or lost.
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

// LeaseStatus is a host's report on one lease epoch.
type LeaseStatus struct {
	LeaseRef
	State  NodeState `json:"state"`
	Reason string    `json:"reason,omitempty"` // a Reason constant
	Detail string    `json:"detail,omitempty"` // for people; ≤ 500 bytes; never a secret
	// Progress is the progress of the present step.
	Progress Progress `json:"progress"`
	// WGKey and Endpoints are set once the overlay is up: the base64 WireGuard public key, which is generated on the host,
	// and host:port addresses at which it can be reached, best first.
	WGKey     string     `json:"wg_key,omitempty"`
	Endpoints []string   `json:"endpoints,omitempty"`
	Preflight *Preflight `json:"preflight,omitempty"` // set once it ended
	// ImageDigest is the digest of the pulled image: sha256:….
	ImageDigest string `json:"image_digest,omitempty"`
	// AtBarrier: the workload is created and started, and waits for its release.
	AtBarrier bool `json:"at_barrier,omitempty"`
	// Started: the barrier was released for this epoch and the command is running (or has run).
	Started bool `json:"started,omitempty"`
	// StartBootMS is when the command began, by the CLOCK_BOOTTIME of the report's boot; 0: unknown.
	StartBootMS int64 `json:"start_boot_ms,omitempty"`
	// Good: at the time of this report the workload ran, its GPUs were healthy, and its overlay and guest were up. It
	// moves confirmed_until; a lease that is not good is not billed.
	Good bool `json:"good,omitempty"`
	// GoodSinceBootMS is since when Good has been true without interruption, by the CLOCK_BOOTTIME of the report's boot;
	// 0: it is not good, or the agent does not know.
	GoodSinceBootMS int64 `json:"good_since_boot_ms,omitempty"`
	// Trouble is why a node that has started is not good (a Reason constant), and TroubleDetail explains it to people in
	// at most 500 bytes. Both are empty if it is good, or if the agent does not know.
	Trouble       string `json:"trouble,omitempty"`
	TroubleDetail string `json:"trouble_detail,omitempty"`
	// StartsAgain: the node died of Trouble before anything of the renter's ran, and is being started again in this epoch.
	// It is unreachable until it reports a WGKey again.
	StartsAgain bool `json:"starts_again,omitempty"`
	// PeersDown lists the ranks from which this host's overlay has received nothing for longer than PeerSilence.
	PeersDown []int `json:"peers_down,omitempty"`
	// PeersDownSince gives, for ranks in PeersDown, when the last byte arrived. Agents of protocol 1 do not send it.
	PeersDownSince []PeerDown `json:"peers_down_since,omitempty"`
	// Paths is how this host's overlay reaches the other ranks, if it knows.
	Paths    []PeerPath `json:"paths,omitempty"`
	ExitCode *int       `json:"exit_code,omitempty"` // set once the command ended by itself
	// ExitBootMS is when the command ended, by the CLOCK_BOOTTIME of the report's boot; 0: unknown.
	ExitBootMS int64 `json:"exit_boot_ms,omitempty"`
	// LogKept: the run has ended, and its log waits in the lease folder until the server stores it.
	LogKept bool `json:"log_kept,omitempty"`
	// Gone: nothing of the lease is left on the host except its stored log and journal.
	Gone bool `json:"gone,omitempty"`
	// GPUsFree: the run's containers and its own scratch are gone and its GPUs are clean, so that another lease may have
	// them. What may be left are uploads of what the run wrote. Older agents do not send it: their GPUs are free once the
	// run is Gone.
	GPUsFree bool `json:"gpus_free,omitempty"`
	// Traffic is the run's traffic so far. It is nil if nothing changed since a report that was acknowledged.
	Traffic *Traffic `json:"traffic,omitempty"`
	// OwnerMB is how much memory of the run's GPUs the host's own programs used, in MB of 2²⁰ bytes, when they began to
	// use more than at the run's start. It informs the renter; nothing depends on it.
	OwnerMB int64 `json:"owner_mb,omitempty"`
	// Leaving is what the cloud of the host's machine announces about it while something of the renter's runs, for people,
	// in at most MaxLeaving bytes: that it will be stopped, restarted or moved. It informs the renter; nothing depends on
	// it.
	Leaving string `json:"leaving,omitempty"`
	// NotUploaded is what of the run's buckets could not be uploaded, once the run is over.
	NotUploaded []NotUploaded `json:"not_uploaded,omitempty"`
}

// MaxLeaving is the longest LeaseStatus.Leaving, in bytes.
const MaxLeaving = 200

// Traffic is a run's traffic on the host's own line to the internet, for the operator, whose address it used, and for
// reports of abuse; and its traffic with the cluster's other ranks. The values are sums since the run began and never
// decrease.
type Traffic struct {
	Opened int64 `json:"opened"` // attempted connections, allowed or above a limit
	// Refused counts packets to places that leases may not reach: private networks, metadata, mail, ports outside the
	// egress.
	Refused int64 `json:"refused"`
	Up      int64 `json:"up_bytes"`   // bytes sent, without the overlay
	Down    int64 `json:"down_bytes"` // bytes received, without the overlay
	// These count the overlay's traffic over the line, with ranks outside the host's networks or through relays; they are
	// 0 from an agent that does not count it.
	OverlayUp   int64 `json:"overlay_up_bytes,omitempty"`
	OverlayDown int64 `json:"overlay_down_bytes,omitempty"`
	// These count the overlay's traffic over all paths, including the line.
	RanksSent     int64 `json:"ranks_sent_bytes,omitempty"`
	RanksReceived int64 `json:"ranks_received_bytes,omitempty"`
}

// PeerPath is how a node's overlay reaches another rank.
type PeerPath struct {
	Rank int    `json:"rank"`
	Path string `json:"path"` // lan, direct, punched or relay; "" if nothing answers
	MTU  int    `json:"mtu,omitempty"`
}

// PeerDown is a rank from which nothing arrives.
type PeerDown struct {
	Rank        int   `json:"rank"`
	SinceBootMS int64 `json:"since_boot_ms"` // CLOCK_BOOTTIME of the report's boot when the last byte arrived
}

// PeerSilenceMS is how long a peer must be silent before its overlay counts as down (keepalives arrive every 2 s).
const PeerSilenceMS = 7000

// Progress is the progress of a step, for people. Zero fields are unknown.
type Progress struct {
	// Step is "manifest", "layers", "unpack", "scratch", "restore", "volumes", "buckets", "guest", "overlay", "peers",
	// "preflight" or "workload".
	Step       string  `json:"step,omitempty"`
	Done       int64   `json:"done,omitempty"` // bytes, for layers and restore
	Total      int64   `json:"total,omitempty"`
	Layers     []Layer `json:"layers,omitempty"`
	WaitingFor string  `json:"waiting_for,omitempty"` // the cause of a delay in words: "rank 1 has not joined"
	// Uploads is what of a running or ending node's buckets is not in their stores yet; nil: nothing.
	Uploads *Uploads `json:"uploads,omitempty"`
}

// Layer is one image layer's download.
type Layer struct {
	Digest string `json:"digest"` // sha256:… first 12 hex
	Done   int64  `json:"done"`
	Total  int64  `json:"total"`
	Cached bool   `json:"cached,omitempty"`
}

// Preflight is what a rank measured on the overlay before the workload started: data sent by processors over TCP, not
// what NCCL reaches with GPUs or RDMA.
type Preflight struct {
	OK        bool      `json:"ok"`
	Detail    string    `json:"detail,omitempty"`    // why OK is false
	BusbwGbps float64   `json:"busbw_gbps"`          // ring all-reduce: S/t·2(n−1)/n, gigabits per second; 0 for one node
	Bytes     int64     `json:"bytes"`               // S
	Seconds   float64   `json:"seconds"`             // t
	Streams   int       `json:"streams,omitempty"`   // TCP connections used at once; 0: one, of an older agent
	RTTMicros []float64 `json:"rtt_us,omitempty"`    // median round trip to each rank; 0 for its own
	PairGbps  []float64 `json:"pair_gbps,omitempty"` // bandwidth to each rank, 0 for its own; empty if not measured
	NCCL      *NCCL     `json:"nccl,omitempty"`      // what its GPUs measured over RDMA; nil: not asked for
}

// These are the reasons that hosts report. Those that the REST API has, too, have its names.
const (
	ReasonImageNotFound     = "image_not_found"
	ReasonImageUnauthorized = "image_unauthorized"
	ReasonImageRefused      = "image_refused"          // malformed, or at an address that is not allowed
	ReasonImageTooBig       = "image_too_big"          // too big for the node's disk_gb
	ReasonImageWrongArch    = "image_wrong_arch"       // built for another processor
	ReasonImageNewerCUDA    = "image_needs_newer_cuda" // requires more than the host's driver supports
	ReasonRegistryAway      = "registry_unreachable"   // after retrying for a minute
	ReasonRegistrySlow      = "registry_too_slow"      // less than 1 MB/s during two minutes of waiting for it
	ReasonNoDisk            = "no_disk"
	ReasonCommandNotFound   = "command_not_found"
	ReasonPreflightFailed   = "preflight_failed"
	ReasonHostInterrupted   = "host_interrupted" // a failure of the host ended the container
	ReasonGPUFailed         = "gpu_failed"
	ReasonGPUInUse          = "gpu_in_use"     // by the host's owner, when the node should start
	ReasonRuntimeFailed     = "runtime_failed" // Docker refused
	// the host lost what it was chosen for: a runtime, a disk limit, scratch
	ReasonNotOffered    = "not_offered"
	ReasonScratchFailed = "scratch_failed" // scratch could not be created despite retries
	ReasonOverlayFailed = "overlay_failed"
	ReasonRestoreFailed = "restore_failed" // a volume could not be restored despite retries; Detail names it
	ReasonVolumeFenced  = "volume_fenced"  // a volume of the lease is written elsewhere
	// what was stored of a volume is malformed, or more than any host restores; Detail names it
	ReasonVolumeUnreadable = "volume_unreadable"
	// a store refuses a bucket or its credentials, or was not reached for two minutes; Detail names it
	ReasonBucketUnusable = "bucket_unusable"
	// a shared file system is not mounted on the host, another one is, or it does not answer; Detail names it
	ReasonSharedUnusable = "shared_unusable"
	ReasonGuestDied      = "guest_died"
	ReasonRunUntil       = "run_until" // the agent stopped it at the end of the authorised time
	ReasonExited         = "exited"    // the command ended; see ExitCode
	ReasonSuperseded     = "superseded"
)

// Desired is everything that a host should run: level-triggered, never a delta. A lease that is not listed must be
// stopped and wiped.
type Desired struct {
	ControlEpoch int64       `json:"control_epoch"`
	Revision     int64       `json:"revision"`
	Leases       []LeaseSpec `json:"leases"`
	// Requalify lists the requests of which the server knows no result; only for agents with CapRequalify.
	Requalify []GPUOrder `json:"requalify,omitempty"`
	// SharedErase lists folders to delete on shared file systems that the host reports.
	SharedErase []SharedErase `json:"shared_erase,omitempty"`
	// Ending lists leases that have ended and whose volumes the host may still store.
	Ending []EndingLease `json:"ending,omitempty"`
}

// LeaseSpec is one node to run.
type LeaseSpec struct {
	LeaseRef
	Cluster string `json:"cluster"`
	Node    string `json:"node"`
	Rank    int    `json:"rank"`
	Nodes   int    `json:"nodes"`
	// Go releases the barrier of this epoch. Within an epoch it never becomes false again.
	Go bool `json:"go"`

	Image        string        `json:"image"` // reference as written by the renter
	Digest       string        `json:"digest,omitempty"`
	RegistryAuth *RegistryAuth `json:"registry_auth,omitempty"`
	// Entrypoint replaces the image's entry point and its command, as `docker run --entrypoint` does; only for agents with
	// CapEntrypoint.
	Entrypoint []string `json:"entrypoint,omitempty"`
	// Command replaces the image's own command, after its entry point, as in `docker run`.
	Command []string `json:"command,omitempty"`
	// User is whom the node's processes run as, in place of the image's USER, as `docker run --user` does; only for agents
	// with CapUser. "" = the image's.
	User string            `json:"user,omitempty"`
	Env  map[string]string `json:"env,omitempty"` // set by the renter; only ever put into the create request

	GPUs   []string `json:"gpus"` // NVML UUIDs
	CPUs   float64  `json:"cpus"`
	RAMMB  int64    `json:"ram_mb"`
	DiskGB int64    `json:"disk_gb"`
	// DiskLimited: the node runs only on a host that enforces disk_gb. Runtime is the OCI runtime of the workload; "" =
	// runc.
	DiskLimited bool   `json:"disk_limited,omitempty"`
	Runtime     string `json:"runtime,omitempty"`
	// ScratchGB is the size of the node's own file system at /scratch, in GB of 10⁹ bytes; only for agents with
	// CapScratch.
	ScratchGB int64 `json:"scratch_gb,omitempty"`
	// Mounts are the volumes of the node; only for agents with CapVolumes. The workload starts once all are restored.
	Mounts []Mount `json:"mounts,omitempty"`
	// Buckets are the renter's own buckets of the node; only for agents with CapBuckets. The workload starts once all are
	// mounted.
	Buckets []BucketMount `json:"buckets,omitempty"`
	// Lazy are the volumes that the node reads on demand; only for agents with CapLazy. The workload starts once all are
	// mounted.
	Lazy []LazyMount `json:"lazy,omitempty"`
	// Shared are folders of shared file systems of the node; only for hosts that report them in Inventory.Shared.
	Shared  []SharedMount `json:"shared,omitempty"`
	Ports   []Port        `json:"ports,omitempty"`
	Egress  string        `json:"egress"` // full, limited, off
	Network Network       `json:"network"`

	RunUntilMS int64 `json:"run_until_ms"` // 0 = not limited yet
	GraceS     int   `json:"grace_s"`      // seconds between SIGTERM and SIGKILL, ≤ 30
}

// ScratchPath is where a workload finds its scratch.
const ScratchPath = "/scratch"

// RegistryAuth holds the credentials of a private registry. Secret: never logged, never in labels.
type RegistryAuth struct {
	Username string `json:"username"`
	Password string `json:"password"`
}

// Port is one port of the workload that the renter wants to reach.
type Port struct {
	Port     int    `json:"port"`
	Protocol string `json:"protocol"` // http, tcp
}

// Network is the cluster's overlay. Every cluster uses the same range; rank n has base + n + 1.
type Network struct {
	CIDR    string  `json:"cidr"`    // 10.77.0.0/20
	Address string  `json:"address"` // this rank's address
	MTU     int     `json:"mtu"`
	MinGbps float64 `json:"min_gbps,omitempty"` // the preflight fails below it
	// Fabric is FabricRDMA if the workload gets the RDMA ports that the host lends, else "". Only hosts that report
	// Inventory.RDMA get it.
	Fabric string `json:"fabric,omitempty"`
	// Partition is which partition of its fabric the cluster's ports must be in, and in no other; nil: the fabric has one
	// tenant. Only hosts whose Inventory.RDMA has IsolationPartition get it.
	Partition *Partition `json:"partition,omitempty"`
	// NCCL has the ranks measure the fabric with NCCL before the start; nil: they do not. Only clusters whose hosts all
	// have Inventory.RDMA.NCCL get it.
	NCCL  *NCCLRequest `json:"nccl,omitempty"`
	Peers []Peer       `json:"peers"` // all other ranks; Key and Endpoints empty until known
	// Relays lists relays for traffic that has no other path, host:port each, best first. RelayToken opens them until a
	// while after the lease's run_until, and is renewed when that moves; see LeaseExtension. Secret.
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

// HealthEvent is a change of a GPU's health. Seq increases per host and survives restarts.
type HealthEvent struct {
	Seq uint64 `json:"seq"`
	GPU string `json:"gpu"` // UUID
	// Vendor is the GPU's, and Code the vendor's own name of what happened: "xid-79", "sxid-20034". An agent that knows no
	// other vendor than NVIDIA reports Xid alone.
	Vendor string `json:"vendor,omitempty"`
	Code   string `json:"code,omitempty"`
	// xid, lost, ecc, row_remap, off_bus, recovery_action, hang, driver_error, memory_held, cuda_check, nvswitch,
	// nvswitch_registration, recovered; and two that leave the state as it is: degraded, restored
	Kind   string `json:"kind"`
	Xid    int    `json:"xid,omitempty"`
	State  string `json:"state"` // healthy, suspect, quarantined
	Detail string `json:"detail,omitempty"`
	BootID string `json:"boot_id"`
	BootMS int64  `json:"boot_ms"`
}

// CalmTelemetry is the longest time between two telemetry messages of a host without leases. As long as its GPUs'
// readings do not change noticeably, it sends no more; older agents send one every ten seconds.
const CalmTelemetry = 5 * time.Minute

// Telemetry is a batch of samples: every second while a viewer is present, else every 10 s, or at most CalmTelemetry
// apart on a host without leases.
type Telemetry struct {
	Samples []GPUSample `json:"samples"`
	// Nodes are samples of the runs whose workload runs. Older agents send none.
	Nodes []NodeSample `json:"nodes,omitempty"`
}

// NodeSample is one reading of one run: counters of bytes, which begin again from zero when its workload is started
// again. A pointer is nil if the host does not know the value.
type NodeSample struct {
	LeaseRef
	AtMS      int64  `json:"at_ms"`                  // server's clock through the agent's anchor; 0 = none yet
	NetRx     *int64 `json:"net_rx_bytes,omitempty"` // received from the internet
	NetTx     *int64 `json:"net_tx_bytes,omitempty"`
	RanksRx   *int64 `json:"ranks_rx_bytes,omitempty"` // received from the other ranks
	RanksTx   *int64 `json:"ranks_tx_bytes,omitempty"`
	DiskRead  *int64 `json:"disk_read_bytes,omitempty"`
	DiskWrite *int64 `json:"disk_write_bytes,omitempty"`
	// Scratch is how much of its scratch the run uses now; nil without scratch.
	Scratch *int64 `json:"scratch_bytes,omitempty"`
}

// GPUSample is one reading of one GPU. A pointer is nil if the device does not report the value.
type GPUSample struct {
	GPU      string `json:"gpu"`
	AtMS     int64  `json:"at_ms"`               // server's clock through the agent's anchor; 0 = none yet
	Util     *int   `json:"util,omitempty"`      // percent, DCGM_FI_DEV_GPU_UTIL
	MemUsed  *int64 `json:"mem_used,omitempty"`  // bytes, DCGM_FI_DEV_FB_USED
	MemTotal *int64 `json:"mem_total,omitempty"` // bytes
	PowerMW  *int64 `json:"power_mw,omitempty"`  // milliwatts, DCGM_FI_DEV_POWER_USAGE
	TempC    *int   `json:"temp_c,omitempty"`    // DCGM_FI_DEV_GPU_TEMP
	EnergyMJ *int64 `json:"energy_mj,omitempty"` // DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION
	// Clocks names what holds the clocks down now, in the words of NVML's nvmlClocksEventReasons ("sw_power_cap",
	// "hw_thermal_slowdown"). Older agents send none of the following fields.
	Clocks    []string `json:"clocks,omitempty"`
	SMMHz     *int     `json:"sm_mhz,omitempty"`  // DCGM_FI_DEV_SM_CLOCK
	MemMHz    *int     `json:"mem_mhz,omitempty"` // DCGM_FI_DEV_MEM_CLOCK
	PCIeGen   *int     `json:"pcie_gen,omitempty"`
	PCIeWidth *int     `json:"pcie_width,omitempty"` // lanes
	// PCIeGenMax and PCIeWidthMax are the most that the GPU reaches in its slot.
	PCIeGenMax   *int   `json:"pcie_gen_max,omitempty"`
	PCIeWidthMax *int   `json:"pcie_width_max,omitempty"`
	PCIeReplays  *int64 `json:"pcie_replays,omitempty"`  // DCGM_FI_DEV_PCIE_REPLAY_COUNTER
	NVLinkErrors *int64 `json:"nvlink_errors,omitempty"` // CRC errors, replays and recoveries of all links together
	// Fan is how fast the fastest of the GPU's own fans turns, in percent: DCGM_FI_DEV_FAN_SPEED.
	Fan *int `json:"fan,omitempty"`
}
