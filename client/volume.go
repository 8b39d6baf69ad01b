package client

import (
	"context"
	"io"
	"net/http"
	"time"

	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/money"
)

// Volume is a tree of files that follows its organisation to any host.
type Volume struct {
	ID             id.Volume   `json:"id"`
	Name           string      `json:"name" doc:"unique among your organisation's volumes"`
	SizeGB         int64       `json:"size_gb" doc:"what its files may take together, in GB of 10⁹ bytes" example:"100"`
	Keep           int         `json:"keep" doc:"how many of the last snapshots are kept whatever their age" example:"3"`
	CreatedAt      time.Time   `json:"created_at"`
	Snapshots      int64       `json:"snapshots" doc:"snapshots that are kept" example:"3"`
	HeadSeq        int64       `json:"head_seq" doc:"number of the last snapshot; 0: there is none" example:"12"`
	DurableTo      *time.Time  `json:"durable_to" doc:"what was written until then is in the last snapshot, and survives every host; null: there is no snapshot"`
	Label          string      `json:"label" doc:"that the job gave to the last snapshot; may be empty" example:"step_8200"`
	Consistency    string      `json:"consistency" enum:"exact,per_file," doc:"exact: all files of the last snapshot are of one moment; per_file: each file is; empty: there is no snapshot"`
	Bytes          int64       `json:"bytes" doc:"of the files of the last snapshot" example:"1073741824"`
	Files          int64       `json:"files" doc:"of the last snapshot" example:"42"`
	StoredBytes    int64       `json:"stored_bytes" doc:"what is billed: compressed, equal parts once, with all snapshots, and with the volumes that share its data" example:"536870912"`
	Sharing        int64       `json:"sharing" doc:"how many volumes share its stored data, itself included: it and its clones" example:"1"`
	PricePerHour   money.Micro `json:"price_per_hour" doc:"of stored_bytes, now"`
	ClusterID      *id.Cluster `json:"cluster_id" doc:"the cluster that writes it, or wrote it last; null: none"`
	ClusterEndedAt *time.Time  `json:"cluster_ended_at" doc:"when that cluster ended: it wrote the volume last; null: it has not, or there is none"`
	PendingBytes   int64       `json:"pending_bytes" doc:"changed and in no snapshot yet, as the host estimates" example:"0"`
	ETASeconds     int64       `json:"eta_s" doc:"seconds until they would be in one, as the host estimates; 0: none is being taken" example:"0"`
	Problem        string      `json:"problem" doc:"why the last snapshot failed; empty: it did not" example:"the store does not answer"`
	ReportedAt     *time.Time  `json:"reported_at" doc:"when the host reported this last; null: no host has the volume"`
	Owed           money.Nano  `json:"owed" doc:"what is not paid for what it and the volumes that share its data stored"`
	OwedSince      *time.Time  `json:"owed_since" doc:"the first moment that is not paid for; null: nothing is owed"`
	HidesAt        *time.Time  `json:"hides_at" doc:"when it is hidden if what is owed is not paid, or was; null: nothing is owed"`
	HiddenAt       *time.Time  `json:"hidden_at" doc:"since when it cannot be used because it is not paid for; null: it can"`
	ErasesAt       *time.Time  `json:"erases_at" doc:"when it is erased for good if what is owed is not paid; null: nothing is owed"`
}

// NewVolume is a volume to create.
type NewVolume struct {
	Name   string `json:"name" minLength:"1" maxLength:"63" pattern:"^[a-z0-9]([a-z0-9-]*[a-z0-9])?$" patternDescription:"lower-case letters, digits and dashes, such as my-data" doc:"lower-case letters, digits and dashes" example:"training-data"`
	SizeGB int64  `json:"size_gb" minimum:"1" maximum:"100000" doc:"what its files may take together, in GB" example:"100"`
	Keep   int    `json:"keep,omitempty" minimum:"0" maximum:"100" doc:"how many of the last snapshots are kept whatever their age; 0: 3" example:"3"`
}

// VolumeChange is what to change of a volume.
type VolumeChange struct {
	Name   *string `json:"name,omitempty" doc:"the new name" example:"training-data"`
	SizeGB *int64  `json:"size_gb,omitempty" doc:"the new size, from the next start on" example:"200"`
	Keep   *int    `json:"keep,omitempty" doc:"how many of the last snapshots are kept" example:"5"`
}

// VolumeSnapshot is a state of a volume that survives every host.
type VolumeSnapshot struct {
	ID          id.Snapshot `json:"id"`
	Seq         int64       `json:"seq" doc:"its number, from 1" example:"12"`
	CutAt       time.Time   `json:"cut_at" doc:"the moment that it shows"`
	CommittedAt time.Time   `json:"committed_at" doc:"when it became durable"`
	Cause       string      `json:"cause" enum:"interval,notice,end,request,checkpoint,upload,restore,clone,resume" doc:"why it was taken"`
	Consistency string      `json:"consistency" enum:"exact,per_file" doc:"exact: all files are of one moment; per_file: each file is"`
	Label       string      `json:"label" doc:"that the job gave it; may be empty" example:"step_8200"`
	Bytes       int64       `json:"bytes" doc:"of its files" example:"1073741824"`
	AddedBytes  int64       `json:"added_bytes" doc:"what it added to the stored bytes" example:"53687091"`
	Files       int64       `json:"files" doc:"files in it" example:"42"`
	LeftOut     int64       `json:"left_out" doc:"devices, sockets and FIFOs that are not in it" example:"0"`
	LostPacks   int64       `json:"lost_packs" doc:"parts of it that the store has lost or damaged; if there are any, it cannot be restored whole, and files that need them cannot be read" example:"0"`
	LeaseID     *id.Lease   `json:"lease_id,omitempty" doc:"the lease whose host took it and stored what it added; left out: none did"`
	Whole       bool        `json:"whole" doc:"false: a snapshot with mode ranks that contains ranks at different moments; a start restores it only if no snapshot of all ranks has a label" example:"true"`
}

// RequestedSnapshot is a snapshot that the volume's host will take.
type RequestedSnapshot struct {
	ID id.Snapshot `json:"id" doc:"that the snapshot will have"`
}

// SnapshotChoice names a snapshot of a volume.
type SnapshotChoice struct {
	Seq int64 `json:"seq" minimum:"1" doc:"number of the snapshot" example:"12"`
}

// NewClone is a volume to create from a snapshot of another one.
type NewClone struct {
	Name   string `json:"name" minLength:"1" maxLength:"63" pattern:"^[a-z0-9]([a-z0-9-]*[a-z0-9])?$" patternDescription:"lower-case letters, digits and dashes, such as my-data" doc:"of the new volume" example:"training-data-2"`
	Seq    int64  `json:"seq,omitempty" minimum:"0" doc:"number of the snapshot; 0: the last one" example:"12"`
	SizeGB int64  `json:"size_gb,omitempty" minimum:"0" maximum:"100000" doc:"0: as its origin" example:"100"`
}

// VolumeFile is an entry of a directory in a snapshot.
type VolumeFile struct {
	Name       string    `json:"name" doc:"its name, without characters that cannot be printed" example:"model.pt"`
	Kind       string    `json:"kind" enum:"file,dir,symlink" doc:"what it is"`
	Mode       string    `json:"mode" doc:"its permissions, in octal" example:"0644"`
	Bytes      int64     `json:"bytes" doc:"size of a file" example:"1024"`
	ModifiedAt time.Time `json:"modified_at" doc:"when it was changed last"`
	Target     string    `json:"target" doc:"of a symbolic link; else empty" example:""`
}

// ContentQuery selects a file of a snapshot.
type ContentQuery struct {
	Path string `query:"path" required:"true" doc:"a file, from the volume's root" example:"checkpoints/model.pt"`
	Seq  int64  `query:"seq" minimum:"0" doc:"number of the snapshot; left out: the last one"`
}

// FilesQuery selects a directory of a snapshot.
type FilesQuery struct {
	Path string `query:"path" maxLength:"4096" doc:"a directory or a file, from the volume's root; left out: the root"`
	Seq  int64  `query:"seq" minimum:"0" doc:"number of the snapshot; left out: the last one"`
	// Limit is by default what one answer holds at most: clients that know no pages get as much as before, up to that.
	Limit int    `query:"limit" minimum:"1" maximum:"10000" default:"10000" doc:"how many entries at most; an answer may have fewer. Folders with more than 200000 entries are not listed"`
	After string `query:"after" maxLength:"400" doc:"next of the page before, which names the snapshot, too"`
}

// ListFiles lists a directory of a snapshot; seq 0 is the last one. It reads all pages.
func (s VolumesService) ListFiles(ctx context.Context, volume id.Volume, dir string, seq int64) (Page[VolumeFile],
	error) {
	var all []VolumeFile
	q := FilesQuery{Path: dir, Seq: seq}
	for {
		var p Page[VolumeFile]
		if err := s.c.call(ctx, http.MethodGet, path("volumes", volume, "files"), queryOf(q), nil, &p); err != nil {
			return p, err
		}
		if all = append(all, p.Items...); p.Next == nil {
			return Page[VolumeFile]{Items: all}, nil
		}
		q.After = *p.Next
	}
}

// GetContent writes the content of a file in a snapshot to w; seq 0 is the last one.
func (s VolumesService) GetContent(ctx context.Context, w io.Writer, volume id.Volume, file string, seq int64) error {
	body, err := s.c.text(ctx, path("volumes", volume, "content"), queryOf(ContentQuery{file, seq}))
	if err != nil {
		return err
	}
	defer body.Close()
	_, err = io.Copy(w, body)
	return err
}
