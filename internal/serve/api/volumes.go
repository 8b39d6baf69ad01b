package api

import (
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"log/slog"
	"mime"
	"net/http"
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/data/volume"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/httpbody"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/idem"
)

// volumesAPI answers the routes of volumes, their snapshots and files, and transfers.
type volumesAPI struct {
	volumes *volume.Volumes
	log     *slog.Logger
}

func viewVolume(v volume.Volume) client.Volume {
	out := client.Volume{
		ID: v.ID, Name: v.Name, SizeGB: v.SizeLimit / volume.GB, Keep: v.Keep, CreatedAt: v.CreatedAt.UTC(),
		Snapshots: v.Snapshots, HeadSeq: v.HeadSeq, DurableTo: utc(v.DurableTo), Label: v.Label, Consistency: v.Consistency,
		Bytes: v.Bytes, Files: v.Files, StoredBytes: v.StoredBytes, Sharing: v.Sharing, PricePerHour: v.PerHour,
		PendingBytes: v.Pending, ETASeconds: int64(v.ETA / time.Second), Problem: v.Problem, ReportedAt: utc(v.ReportedAt),
		Owed: v.Owed, OwedSince: utc(v.OwedSince), HidesAt: utc(v.HidesAt), HiddenAt: utc(v.HiddenAt),
		ErasesAt: utc(v.ErasesAt),
	}
	if !v.Cluster.IsZero() {
		out.ClusterID, out.ClusterEndedAt = &v.Cluster, utc(v.ClusterEnd)
	}
	return out
}

func viewSnapshot(s volume.Snapshot) client.VolumeSnapshot {
	out := client.VolumeSnapshot{
		ID: s.ID, Seq: s.Seq, CutAt: s.CutAt.UTC(), CommittedAt: s.CommittedAt.UTC(), Cause: s.Cause,
		Consistency: s.Consistency, Label: s.Label, Bytes: s.Bytes, AddedBytes: s.Added, Files: s.Files, LeftOut: s.LeftOut,
		Whole: s.Whole, LostPacks: s.Lost,
	}
	if !s.Lease.IsZero() {
		out.LeaseID = &s.Lease
	}
	return out
}

func viewFile(f volume.File) client.VolumeFile {
	return client.VolumeFile{
		Name: f.Name, Kind: f.Kind, Mode: fmt.Sprintf("%04o", f.Mode), Bytes: f.Size, Target: f.Target,
		ModifiedAt: time.Unix(0, f.MTime).UTC(),
	}
}

// storeCheck returns what was found in the store of volumes. It is for admins.
func (a platformAPI) storeCheck(ctx context.Context, p account.Principal, _ *struct{}) (client.StoreCheck, error) {
	c, err := a.volumes.Scrubber.Checked(ctx, p)
	out := client.StoreCheck{
		ListedAt: utc(c.ListedAt), ListFailingAt: utc(c.ListFailingAt), UnreadSince: utc(c.UnreadSince),
		UnknownObjects: c.Unknown, ForeignObjects: c.Foreign, ForeignExample: c.Example, Packs: []client.StorePack{},
	}
	for _, x := range c.Packs {
		pack := client.StorePack{DomainID: x.Domain, Number: x.Number, Key: x.Key, State: x.State, Since: x.Since.UTC(),
			Bytes: x.Bytes, Needed: []client.StorePackOwner{}}
		for _, n := range x.Needed {
			pack.Needed = append(pack.Needed, client.StorePackOwner{OrgID: n.Org, VolumeID: n.Volume, Snapshots: n.Snapshots})
		}
		out.Packs = append(out.Packs, pack)
	}
	return out, err
}

func (a volumesAPI) list(ctx context.Context, p account.Principal, _ *struct{}) (list[client.Volume], error) {
	all, err := a.volumes.Catalog.List(ctx, p.Org)
	return cut(all, len(all), viewVolume, func(v volume.Volume) string { return v.Name }), err
}

func (a volumesAPI) get(ctx context.Context, p account.Principal, in *of[id.Volume]) (client.Volume, error) {
	out, err := a.volumes.Catalog.Get(ctx, p.Org, in.ID)
	return viewVolume(out), err
}

func (a volumesAPI) create(ctx context.Context, p account.Principal, in *create[client.NewVolume],
	once idem.Request) (client.Volume, idem.Outcome, error) {
	v, out, err := a.volumes.Catalog.Create(ctx, p, volume.NewVolume(in.Body), idem.As(once, viewVolume))
	return viewVolume(v), out, err
}

func (a volumesAPI) change(ctx context.Context, p account.Principal,
	in *change[id.Volume, client.VolumeChange]) (client.Volume, error) {
	out, err := a.volumes.Catalog.Set(ctx, p, in.ID, volume.Change(in.Body))
	return viewVolume(out), err
}

func (a volumesAPI) delete(ctx context.Context, p account.Principal, in *of[id.Volume]) (nothing, error) {
	return nothing{}, a.volumes.Catalog.Delete(ctx, p, in.ID)
}

func (a volumesAPI) listSnapshots(ctx context.Context, p account.Principal,
	in *of[id.Volume]) (list[client.VolumeSnapshot], error) {
	all, err := a.volumes.Snapshots.List(ctx, p.Org, in.ID)
	return cut(all, len(all), viewSnapshot, func(s volume.Snapshot) string { return s.ID.String() }), err
}

// snapshot needs no key: while a snapshot is requested, its id is returned.
func (a volumesAPI) snapshot(ctx context.Context, p account.Principal, in *keyedOf[id.Volume],
	_ idem.Request) (client.RequestedSnapshot, idem.Outcome, error) {
	snap, err := a.volumes.Snapshots.Request(ctx, p, in.ID)
	return client.RequestedSnapshot{ID: snap}, idem.Outcome{}, err
}

type snapshotInput struct {
	ID  id.Volume `path:"id"`
	Seq int64     `path:"seq" doc:"number of the snapshot"`
}

func (a volumesAPI) deleteSnapshot(ctx context.Context, p account.Principal, in *snapshotInput) (nothing, error) {
	return nothing{}, a.volumes.Snapshots.Delete(ctx, p, in.ID, in.Seq)
}

func (a volumesAPI) restore(ctx context.Context, p account.Principal, in *act[id.Volume, client.SnapshotChoice],
	once idem.Request) (client.VolumeSnapshot, idem.Outcome, error) {
	s, out, err := a.volumes.Snapshots.Restore(ctx, p, in.ID, in.Body.Seq, idem.As(once, viewSnapshot))
	return viewSnapshot(s), out, err
}

func (a volumesAPI) clone(ctx context.Context, p account.Principal, in *act[id.Volume, client.NewClone],
	once idem.Request) (client.Volume, idem.Outcome, error) {
	c, out, err := a.volumes.Snapshots.Clone(ctx, p, in.ID, in.Body.Seq, volume.NewVolume{Name: in.Body.Name,
		SizeGB: in.Body.SizeGB},
		idem.As(once, viewVolume))
	return viewVolume(c), out, err
}

type filesInput struct {
	ID id.Volume `path:"id"`
	client.FilesQuery
}

// fileCursor is the cursor of a directory's next page: the snapshot, so that all pages are of one, and the name of the
// last entry, which people may not be able to print.
func fileCursor(seq int64, name string) string {
	return strconv.FormatInt(seq, 10) + "." + base64.RawURLEncoding.EncodeToString([]byte(name))
}

func parseFileCursor(s string) (seq int64, name string, err error) {
	number, rest, ok := strings.Cut(s, ".")
	raw, nerr := base64.RawURLEncoding.DecodeString(rest)
	seq, serr := strconv.ParseInt(number, 10, 64)
	if !ok || nerr != nil || serr != nil || seq < 1 {
		return 0, "", fault.InvalidField("query.after", "is not a cursor of this list")
	}
	return seq, string(raw), nil
}

func (a volumesAPI) listFiles(ctx context.Context, p account.Principal,
	in *filesInput) (list[client.VolumeFile], error) {
	seq, after := in.Seq, ""
	if in.After != "" {
		var err error
		if seq, after, err = parseFileCursor(in.After); err != nil {
			return list[client.VolumeFile]{}, err
		}
	}
	tree, err := a.volumes.Files.Tree(ctx, p.Org, in.ID, seq)
	if err != nil {
		return list[client.VolumeFile]{}, err
	}
	files, next, err := tree.List(ctx, in.Path, after, in.Limit)
	out := cut(files, len(files), viewFile, func(f volume.File) string { return f.Name })
	if next != "" {
		cursor := fileCursor(tree.Snapshot.Seq, next)
		out.Next = &cursor
	}
	return out, err
}

type contentInput struct {
	ID id.Volume `path:"id"`
	client.ContentQuery
}

// content sends a file of a snapshot. It is sent as a download of no type, never as a page: its renter's users
// may not be the ones who open it.
func (a volumesAPI) content(w http.ResponseWriter, r *http.Request, p account.Principal, in *contentInput) error {
	tree, err := a.volumes.Files.Tree(r.Context(), p.Org, in.ID, in.Seq)
	if err != nil {
		return err
	}
	out, begun := httpbody.NewAnswer(w), false
	err = tree.Send(r.Context(), in.Path, func(f volume.File) io.Writer {
		begun = true
		w.Header().Set("Content-Type", "application/octet-stream")
		w.Header().Set("X-Content-Type-Options", "nosniff")
		w.Header().Set("Content-Length", strconv.FormatInt(f.Size, 10))
		name := map[string]string{"filename": path.Base(f.Name)}
		w.Header().Set("Content-Disposition", mime.FormatMediaType("attachment", name))
		return out
	})
	if err != nil && begun {
		a.log.Warn("a file of a volume could not be sent", "volume", in.ID, "err", err)
		panic(http.ErrAbortHandler) // the length is announced: what is missing must not look like the end
	}
	out.End()
	return err
}
