package agentapi

import "fmt"

// Volumes: data that follows its renter. A volume is a tree of files whose snapshots lie in a store as packs of sealed
// chunks (packages internal/data/chunk and internal/data/manifest); the database knows packs and snapshots, never
// files. What a snapshot that the database committed contains is durable; nothing else is.
//
// An agent finds the volumes of a lease in LeaseSpec.Mounts and sends requests about them on SubjectVolume, one
// VolumeRequest at a time per session, with Op and the field of the same name:
//
//	open     before the workload of this epoch is created, and again after a restart of the agent: a session
//	read     URLs to read packs of the snapshot to restore
//	reserve  numbers for packs, which references contain
//	grant    URLs to write whole packs, whose length and SHA-256 are signed
//	commit   a snapshot; after the reply it is durable
//	prepare  a snapshot of one rank's copy (MountRanks), instead of commit; repeat it until the reply has Seq
//	report   what is not durable yet, for people
//	close    nothing more will be committed: the volume can be written elsewhere
//
// All are idempotent: after a lost reply, send the same again. The server checks the lease and its epoch against its
// own rows with every request, never the agent's word alone. Agents never hold the store's credentials.
//
// At the end of a lease (it is no longer in Desired) the agent may go on to reserve, grant and commit for
// VolumeFlushMaxS seconds, and closes the session before it reports the lease Gone. The server ends the session of a
// lease that is Gone, of one whose host is lost as soon as the volume is rented elsewhere, and of one that was
// restarted: from then on every request is answered VolumeFenced.

// SubjectVolume is where a host requests what it needs for volumes: VolumeRequest → VolumeReply.
func SubjectVolume(host string) string { return "host." + host + ".volume" }

// Modes of a mount.
const (
	MountRW = "rw" // the only writer of the volume
	MountRO = "ro" // reads one snapshot, the head when the session was opened
	// MountRanks: every rank of the cluster writes a copy of its own; commits have what all of them have changed. Only for
	// agents with CapRanks.
	MountRanks = "ranks"
)

// Limits of the requests about volumes.
const (
	MaxReserve      = 64      // numbers of packs in one reserve
	MaxGrants       = 16      // packs in one grant
	MaxReads        = 64      // packs in one read
	MaxSnapshotSet  = 1 << 18 // bytes of CommitVolume.Packs
	MaxLabel        = 100     // bytes of a label
	VolumeFlushMaxS = 1800    // seconds after a lease's end in which the last snapshot may be committed
	// VolumeSessionS is how long a session lives after the last request in it. Report at least three times as often.
	VolumeSessionS = 3600
)

// EndingLease is a lease that has ended, with what its host needs to store what its volumes have: an agent that was
// restarted has lost the keys, which are only in memory.
type EndingLease struct {
	LeaseRef
	Keys []VolumeKey `json:"keys"`
}

// VolumeKey is the key of a volume's data domain: see Mount.Key. Secret.
type VolumeKey struct {
	Volume string `json:"volume"`
	Key    []byte `json:"key"`
}

// Mount is a volume of a lease.
type Mount struct {
	// Path is where the workload finds it: absolute, clean, not / and not inside another mount.
	Path string `json:"path"`
	// Volume is its id, "vol_…". Name is for messages to people.
	Volume string `json:"volume"`
	Name   string `json:"name"`
	Mode   string `json:"mode"` // MountRW, MountRO, MountRanks
	// SizeLimit is how many bytes the file system offers to the workload. Add to it what clones of the cut need.
	SizeLimit int64          `json:"size_limit"`
	Snapshot  SnapshotPolicy `json:"snapshot,omitzero"` // not for MountRO
	// Pause is "never" if a cut must not stop the workload; "" allows 300 ms.
	Pause string `json:"pause,omitempty"`
	// Domain names the data domain, which is the prefix of its packs in the store, and Key is its key, of chunk.KeySize
	// bytes. Keep Key in memory only: never on disk, in logs, arguments or labels. Secret.
	Domain string `json:"domain"`
	Key    []byte `json:"key"`
	// SnapshotNow is the id of a snapshot that the renter requested, "snp_…". The agent commits one under this id, unless
	// it did before: it is a level, and stays in the spec until a newer request replaces it or it is committed.
	SnapshotNow string `json:"snapshot_now,omitempty"`
}

// MinVolumeRoom is the smallest file system of a volume, in bytes: below 300 MB mkfs.xfs refuses.
const MinVolumeRoom = 320 << 20

// VolumeRoom returns how many bytes of a host's scratch a volume takes: its limit, and room for clones of blocks that
// have changed since the last snapshot.
func VolumeRoom(sizeLimit int64) int64 {
	return max(MinVolumeRoom, sizeLimit+max(sizeLimit/10, 2<<30))
}

// SnapshotPolicy says when an agent takes snapshots by itself.
type SnapshotPolicy struct {
	EveryS int `json:"every_s,omitempty"` // seconds from the beginning of one snapshot to the next; 0: not by time
	// OnNotice: when the host is about to be reclaimed. OnEnd: after the workload's end, before the wipe.
	OnNotice bool `json:"on_notice,omitempty"`
	OnEnd    bool `json:"on_end,omitempty"`
}

// VolumeRequest is one request about a volume of a lease. Exactly the field that Op names is set.
type VolumeRequest struct {
	Op string `json:"op"` // a VolumeOp constant
	LeaseRef
	Volume string `json:"volume"` // vol_…
	// Session is that of the open's reply; "" in open.
	Session string         `json:"session,omitempty"`
	Open    *OpenVolume    `json:"open,omitempty"`
	Reserve *ReservePacks  `json:"reserve,omitempty"`
	Grant   *GrantPacks    `json:"grant,omitempty"`
	Commit  *CommitVolume  `json:"commit,omitempty"`
	Prepare *PrepareVolume `json:"prepare,omitempty"`
	Read    *ReadPacks     `json:"read,omitempty"`
	Report  *VolumeReport  `json:"report,omitempty"`
	Close   *CloseVolume   `json:"close,omitempty"`
}

// Values of VolumeRequest.Op.
const (
	VolumeOpen    = "open"
	VolumeReserve = "reserve"
	VolumeGrant   = "grant"
	VolumeCommit  = "commit"
	VolumePrepare = "prepare"
	VolumeRead    = "read"
	VolumeReports = "report"
	VolumeClose   = "close"
)

// VolumeReply is the reply. Either Error is set, or the field of the request's Op (report and close have none).
type VolumeReply struct {
	// AckError and RetryMS are those of an Ack: the request was not read, send it again. See TooMany.
	AckError string           `json:"error,omitempty"`
	RetryMS  int64            `json:"retry_ms,omitempty"`
	Error    *VolumeError     `json:"failed,omitempty"`
	Open     *OpenedVolume    `json:"open,omitempty"`
	Reserve  *ReservedPacks   `json:"reserve,omitempty"`
	Grant    *GrantedPacks    `json:"grant,omitempty"`
	Commit   *CommittedVolume `json:"commit,omitempty"`
	Prepare  *PreparedVolume  `json:"prepare,omitempty"`
	Read     *ReadablePacks   `json:"read,omitempty"`
}

// VolumeError is why a request about a volume failed.
type VolumeError struct {
	Code    string `json:"code"`
	Message string `json:"message"` // a sentence for people
	// Packs lists, for VolumeMissing, the packs that the snapshot names and that are not in the store (any more): send
	// their chunks again, in new packs, and commit what refers to those. At most 1,000; there may be more.
	Packs []int64 `json:"packs,omitempty"`
}

func (e *VolumeError) Error() string { return fmt.Sprintf("%s: %s", e.Code, e.Message) }

// Codes of a VolumeError.
const (
	// VolumeFenced: the lease or its epoch has ended, or its session was replaced. Final: commit nothing more, wipe.
	VolumeFenced = "fenced"
	// VolumeInUse (open): another living lease writes the volume.
	VolumeInUse = "in_use"
	// VolumeMissing (commit): packs are missing; see VolumeError.Packs.
	VolumeMissing = "missing_packs"
	// VolumeBaseMoved (commit): BaseSeq is not the head. Final for this snapshot id; only a defect leads here.
	VolumeBaseMoved = "base_moved"
	// VolumeQuota (grant): the organisation's limit of stored bytes is reached, or its money is used up. Drop the snapshot
	// and try the next one later, at longer intervals.
	VolumeQuota = "quota"
	// VolumeTooSoon (commit): less than 10 s after the last snapshot, or too many are kept. Try the next one later.
	VolumeTooSoon = "too_soon"
	// VolumeNotFound: the volume or snapshot does not exist, or is not of this lease. Final.
	VolumeNotFound = "not_found"
	// VolumeMalformed: the request breaks a limit or a form. Final.
	VolumeMalformed = "malformed"
	// VolumeConflict (prepare): ranks have changed a path differently; the message names both. Final for this snapshot id.
	VolumeConflict = "conflict"
	// VolumeLabelUsed (prepare): all ranks have committed the label since their start. Final for this snapshot id.
	VolumeLabelUsed = "label_used"
	// VolumeAway: the store or the database does not answer. Send it again later, from 1 s to a minute.
	VolumeAway = "unavailable"
)

// PackPlace says where the bytes of a chunk's blob are. It is the wire form of manifest.Ref.
type PackPlace struct {
	ID     string `json:"id"` // of the chunk, 64 hexadecimal digits
	Pack   int64  `json:"pack"`
	Offset uint32 `json:"offset"` // of the blob in the pack, bytes
	Length uint32 `json:"length"` // of the blob, bytes
	Size   uint32 `json:"size"`   // of the chunk, bytes
}

// Snapshot is a committed snapshot.
type Snapshot struct {
	ID    string    `json:"id"` // snp_…
	Seq   int64     `json:"seq"`
	Root  PackPlace `json:"root"`  // of its manifest.Root
	Packs []byte    `json:"packs"` // manifest.PackSet of all packs that it needs
	Label string    `json:"label,omitempty"`
	// LogicalBytes is the sum of the files' sizes without holes, for the progress of a restore.
	LogicalBytes int64 `json:"logical_bytes"`
	Files        int64 `json:"files"`
	CutAtMS      int64 `json:"cut_at_ms"`
}

// OpenVolume opens the session of this run of the lease, or returns the one that it has.
type OpenVolume struct {
	Mode string `json:"mode"` // that of the mount
}

// OpenedVolume is the session.
type OpenedVolume struct {
	Session string `json:"session"`
	// Base is what to restore before the start: the volume's last commit when this session was opened. After a restart of
	// the agent it is the last commit of the session itself, which is what its clones continue from. An agent that still
	// has the lease's tree from the epoch before, with Base as its last commit, may go on with that tree instead. nil: the
	// volume is empty.
	Base *Snapshot `json:"base,omitempty"`
	// HeadSeq is the number of the last commit; the next one is CommitVolume.BaseSeq + 1.
	HeadSeq int64 `json:"head_seq"`
}

// ReservePacks reserves numbers for packs. A pack's number is in every reference to its chunks, so that it must be
// known before the manifest can be written. A number that is not used is never given again.
type ReservePacks struct {
	Count int `json:"count"` // 1 to MaxReserve
}

// ReservedPacks are the numbers First to First + Count − 1.
type ReservedPacks struct {
	First int64 `json:"first"`
	Count int   `json:"count"`
}

// GrantPacks requests URLs to write packs of a snapshot.
type GrantPacks struct {
	// Snapshot is the id of the snapshot that will contain them, "snp_…", which the agent chooses before its first grant
	// and keeps in its record, so that a snapshot that was interrupted goes on under the same id.
	Snapshot string      `json:"snapshot"`
	Packs    []PackGrant `json:"packs"` // 1 to MaxGrants
}

// PackGrant is one whole pack.
type PackGrant struct {
	N      int64  `json:"n"`      // a reserved number
	SHA256 []byte `json:"sha256"` // of the pack's bytes, 32 bytes
	Bytes  int64  `json:"bytes"`  // 1 to chunk.PackSize
}

// GrantedPacks answers each pack, in their order.
type GrantedPacks struct {
	Packs []PackURL `json:"packs"`
}

// PackURL is a signed request to the store. The header's fields are signed: the request must have all of them, as they
// are. Never log URL.
//
// A PUT is answered 200 if the pack is stored; 412 if it was stored before, which is success as well; 400 if the body
// is not what was signed; 403 if the time is over. Repeat the grant for a new URL.
type PackURL struct {
	N       int64             `json:"n"`
	Stored  bool              `json:"stored,omitempty"` // the pack is in the store: nothing to send
	Method  string            `json:"method,omitempty"` // PUT or GET
	URL     string            `json:"url,omitempty"`
	Header  map[string]string `json:"header,omitempty"`
	UntilMS int64             `json:"until_ms,omitempty"`
	// For reading: what the whole pack is.
	Bytes  int64  `json:"bytes,omitempty"`
	SHA256 []byte `json:"sha256,omitempty"`
}

// CommitVolume commits a snapshot. Committing an id again returns what was committed.
type CommitVolume struct {
	Snapshot string    `json:"snapshot"` // snp_…, as in GrantPacks
	BaseSeq  int64     `json:"base_seq"` // HeadSeq of the open, or Seq of the session's last commit
	Root     PackPlace `json:"root"`
	// Packs is the manifest.PackSet of all packs that the snapshot refers to, old ones included, at most MaxSnapshotSet
	// bytes.
	Packs        []byte `json:"packs"`
	LogicalBytes int64  `json:"logical_bytes"` // as in Snapshot
	Files        int64  `json:"files"`
	LeftOut      int64  `json:"left_out,omitempty"` // devices, sockets, FIFOs
	CutAtMS      int64  `json:"cut_at_ms"`          // when the cut was consistent, by the time anchor
	Cause        string `json:"cause"`              // a Snapshot constant
	Consistency  string `json:"consistency"`        // SnapshotExact, SnapshotPerFile
	Label        string `json:"label,omitempty"`    // printable, at most MaxLabel bytes
}

// Causes of a snapshot.
const (
	SnapshotByInterval = "interval"
	SnapshotByNotice   = "notice"
	SnapshotByEnd      = "end"
	SnapshotByRequest  = "request" // Mount.SnapshotNow
	SnapshotByJob      = "checkpoint"
	SnapshotByUpload   = "upload" // muster volume cp; never by an agent
)

// How the files of a snapshot belong together.
const (
	SnapshotExact   = "exact"    // all files are of one moment
	SnapshotPerFile = "per_file" // each file is of one moment
)

// CommittedVolume is the reply to a commit: the snapshot is durable.
type CommittedVolume struct {
	Seq           int64 `json:"seq"`
	CommittedAtMS int64 `json:"committed_at_ms"`
}

// PrepareVolume is a snapshot of one rank's copy. With AllRanks it is committed in one transaction with those that all
// other ranks of the cluster, in their present epochs, prepare under the same label (SnapshotByJob) or the same id
// (SnapshotByRequest); else alone. A commit adds what the ranks have changed since their last commits to the volume's
// head. BaseSeq is the Seq of this rank's last commit.
type PrepareVolume struct {
	CommitVolume
	AllRanks bool `json:"all_ranks,omitempty"`
	// Withdraw: it will not be committed any more, unless it is already: then the reply has Seq.
	Withdraw bool `json:"withdraw,omitempty"`
}

// PreparedVolume is the reply to a prepare.
type PreparedVolume struct {
	// Seq is the number of the commit; 0: it waits for the ranks in Missing, or for its turn. Send the same again in a
	// second or two.
	Seq           int64  `json:"seq,omitempty"`
	Snapshot      string `json:"snapshot,omitempty"` // id of the commit
	CommittedAtMS int64  `json:"committed_at_ms,omitempty"`
	Missing       []int  `json:"missing,omitempty"`
}

// ReadPacks requests URLs to read packs of the session's base, or of its last commit.
type ReadPacks struct {
	Packs []int64 `json:"packs"` // 1 to MaxReads
}

// ReadablePacks answers each pack, in their order. The store answers Range requests.
type ReadablePacks struct {
	Packs []PackURL `json:"packs"`
}

// VolumeReport says what is not durable yet, for people. Send it when it changes, at most every 5 s, and at least every
// 15 minutes, because it keeps the session alive.
type VolumeReport struct {
	PendingBytes int64 `json:"pending_bytes"` // changed and not committed, estimated
	FlushETAS    int64 `json:"flush_eta_s"`   // seconds until it would be committed, estimated; 0: nothing is being sent
	// Snapshot is the id of the snapshot under way, with how much of it was sent; "" = none.
	Snapshot string `json:"snapshot,omitempty"`
	Sent     int64  `json:"sent,omitempty"`
	Total    int64  `json:"total,omitempty"`
	// Problem is why the last snapshot failed, at most 500 bytes; "" = it did not. Never a secret.
	Problem string `json:"problem,omitempty"`
}

// CloseVolume ends the session. Lost is what the workload wrote after the last commit and is lost for all, 0 if
// nothing or not known.
type CloseVolume struct {
	LostBytes int64 `json:"lost_bytes,omitempty"`
}
