package client

import (
	"time"

	"github.com/musterhq/muster/internal/id"
)

// A transfer moves files between a machine and a volume, without a cluster. `muster volume cp` is a program for it: it
// splits files into chunks, seals them with the volume's key and sends them to the store in packs.

// NewTransfer is a transfer to open.
type NewTransfer struct {
	Direction string `json:"direction" enum:"upload,download" doc:"upload: writes the volume's next snapshot; download: reads a snapshot"`
	Seq       int64  `json:"seq,omitempty" minimum:"0" doc:"number of the snapshot to download; 0: the last one" example:"12"`
}

// Transfer is an open transfer.
type Transfer struct {
	ID        id.DataSession    `json:"id"`
	Direction string            `json:"direction" enum:"upload,download" doc:"upload: writes the volume's next snapshot; download: reads a snapshot"`
	Key       []byte            `json:"key" doc:"secret: the key of the volume's chunks, in base64; keep it in memory only" example:"n4bQgYhMfWWaL+qgxVrQFaO/TxsrC4Is0V1sFbDwCgg="`
	HeadSeq   int64             `json:"head_seq" doc:"number of the volume's last snapshot; 0: there is none" example:"12"`
	SizeGB    int64             `json:"size_gb" doc:"what the volume's files may take together, in GB" example:"100"`
	Snapshot  *TransferSnapshot `json:"snapshot" doc:"what an upload changes, or a download reads; null: the volume is empty"`
}

// TransferSnapshot is where a snapshot's tree is.
type TransferSnapshot struct {
	ID    id.Snapshot `json:"id"`
	Seq   int64       `json:"seq" doc:"its number" example:"12"`
	Root  PackPlace   `json:"root" doc:"the chunk with the root of its tree"`
	Packs []byte      `json:"packs" doc:"the numbers of all packs that it needs, as runs of varints" example:"EQI="`
	Bytes int64       `json:"bytes" doc:"of its files" example:"1073741824"`
	Files int64       `json:"files" doc:"files in it" example:"42"`
}

// PackPlace is where a chunk is.
type PackPlace struct {
	ID     string `json:"id" pattern:"^[0-9a-f]{64}$" doc:"the chunk's keyed hash, in hexadecimal" example:"9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"`
	Pack   int64  `json:"pack" minimum:"1" doc:"number of the pack" example:"17"`
	Offset uint32 `json:"offset" doc:"where in the pack the sealed chunk begins" example:"8"`
	Length uint32 `json:"length" doc:"bytes of the sealed chunk" example:"262173"`
	Size   uint32 `json:"size" doc:"bytes of the chunk" example:"262144"`
}

// PackCount is how many numbers to reserve.
type PackCount struct {
	Count int `json:"count" minimum:"1" maximum:"64" doc:"how many packs" example:"8"`
}

// PackNumbers are the numbers first to first + count − 1.
type PackNumbers struct {
	First int64 `json:"first" doc:"the first number" example:"17"`
	Count int   `json:"count" doc:"how many" example:"8"`
}

// NewPack is a whole pack to store.
type NewPack struct {
	SHA256 []byte `json:"sha256" doc:"of the pack, in base64" example:"n4bQgYhMfWWaL+qgxVrQFaO/TxsrC4Is0V1sFbDwCgg="`
	Bytes  int64  `json:"bytes" minimum:"1" maximum:"16777216" doc:"of the pack" example:"16777216"`
}

// PackRequest is a signed request to the store. It is secret until it expires.
type PackRequest struct {
	N         int64             `json:"n" doc:"number of the pack" example:"17"`
	Stored    bool              `json:"stored" doc:"the pack is stored already: there is nothing to send"`
	Method    string            `json:"method" doc:"of the request; empty if it is stored" example:"PUT"`
	URL       string            `json:"url" doc:"secret: where to send it" example:"https://store.example/muster/d/dom/17"`
	Header    map[string]string `json:"header" doc:"signed: send them as they are"`
	ExpiresAt *time.Time        `json:"expires_at" doc:"until when the store accepts it; then get another one"`
	Bytes     int64             `json:"bytes" doc:"of the pack" example:"16777216"`
}

// NewUpload is what an upload commits.
type NewUpload struct {
	Snapshot id.Snapshot `json:"snapshot" doc:"the id of the snapshot, which the caller chooses; repeated, it is committed once"`
	Root     PackPlace   `json:"root" doc:"the chunk with the root of the tree"`
	Packs    []byte      `json:"packs" doc:"the numbers of all packs that it needs, old ones included, as runs of varints" example:"EQI="`
	Bytes    int64       `json:"bytes" minimum:"0" doc:"of its files" example:"1073741824"`
	Files    int64       `json:"files" minimum:"0" doc:"files in it" example:"42"`
	LeftOut  int64       `json:"left_out,omitempty" minimum:"0" doc:"devices, sockets and FIFOs that are not in it" example:"0"`
	Label    string      `json:"label,omitempty" maxLength:"100" doc:"of the snapshot" example:"imagenet"`
}

// UploadOutcome is a committed snapshot, or packs that are not in the store.
type UploadOutcome struct {
	Seq         int64      `json:"seq" doc:"number of the snapshot; 0: it is not committed" example:"13"`
	CommittedAt *time.Time `json:"committed_at" doc:"when it became durable; null: it is not"`
	Missing     []int64    `json:"missing" example:"[17]" doc:"packs that the store does not have (any more): send their chunks in other packs, and commit again"`
}

// TransferProgress is how far a transfer is, for the volume's page.
type TransferProgress struct {
	Sent  int64 `json:"sent" minimum:"0" doc:"bytes that are done" example:"536870912"`
	Total int64 `json:"total" minimum:"0" doc:"bytes of all files" example:"1073741824"`
}
