package clusters

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/go-chi/chi/v5"

	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/data/volume"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/fleet/cluster"
	"github.com/musterhq/muster/internal/fleet/market"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/web/page"
	"github.com/musterhq/muster/web/view"
)

// MountRow is a volume or a bucket of the cluster, with how durable it is now.
type MountRow struct {
	Path, ID, Name, Mode      string
	Durable, Age, Consistency string // Durable is "" without a snapshot
	Pending, Problem, Note    string
	Requested                 bool // a snapshot is requested
	MaySnapshot               bool // the visitor may request one now
	Gone                      bool // the volume or bucket is deleted
	Bucket                    bool // it is one of the renter's buckets
	Lazy                      bool // it is read on demand
	Shared                    bool // it is a folder on a shared file system
}

// mounts reads what a cluster has mounted, and how durable it is.
func (s *Pages) mounts(ctx context.Context, who account.Principal, c cluster.Cluster, now time.Time) ([]MountRow,
	error) {
	var out []MountRow
	reading, err := s.Volumes.Hosts.Reading(ctx, c.ID)
	if err != nil {
		return nil, err
	}
	for _, m := range c.Spec.Mounts {
		if !m.Bucket.IsZero() {
			row, err := s.bucketRow(ctx, who, c, m)
			if err != nil {
				return nil, err
			}
			out = append(out, row)
			continue
		}
		if m.Shared != "" {
			row, err := s.sharedRow(ctx, who, m)
			if err != nil {
				return nil, err
			}
			out = append(out, row)
			continue
		}
		row := MountRow{Path: m.Path, ID: m.Volume.String(), Name: m.Volume.String(), Mode: m.Mode}
		x, err := s.Volumes.Catalog.Get(ctx, who.Org, m.Volume)
		switch {
		case fault.Is(err, fault.NotFound):
			row.Gone, row.Note = true, "deleted"
		case err != nil:
			return nil, err
		default:
			row.fill(x, c, now)
			row.MaySnapshot = row.MaySnapshot && who.CanAny(account.WriteClusters...)
			if m.Lazy {
				row.Mode = fmt.Sprintf("ro, lazy, %d GB of cache", m.CacheGB)
				row.Lazy, row.Problem = true, reading[m.Volume]
			}
		}
		out = append(out, row)
	}
	return out, nil
}

// sharedRow reads a shared file system of the cluster.
func (s *Pages) sharedRow(ctx context.Context, who account.Principal, m market.Mount) (MountRow, error) {
	row := MountRow{Path: m.Path, ID: m.Shared, Name: m.Shared, Mode: m.Mode, Shared: true}
	all, err := s.Shared.List(ctx, who.Org)
	if err != nil {
		return row, err
	}
	for _, f := range all {
		if d := f.Data; f.Name == m.Shared && d != nil {
			row.Note = fmt.Sprintf("%.1f of %d GB used", float64(d.UsedBytes)/1e9, f.QuotaGB)
			if row.Problem = d.Problem; d.Closed {
				row.Problem = "It is over its quota: delete files."
			}
		}
	}
	return row, nil
}

// bucketRow reads a bucket of the cluster. What is not uploaded yet is that of all mounts of the nodes together.
func (s *Pages) bucketRow(ctx context.Context, who account.Principal, c cluster.Cluster, m market.Mount) (MountRow,
	error) {
	row := MountRow{Path: m.Path, ID: m.Bucket.String(), Name: m.Bucket.String(), Mode: m.Mode, Bucket: true}
	b, err := s.Buckets.Get(ctx, who.Org, m.Bucket)
	switch {
	case fault.Is(err, fault.NotFound):
		row.Gone, row.Note = true, "deleted"
		return row, nil
	case err != nil:
		return row, err
	}
	row.Name, row.Problem = b.Name, b.Problem
	if m.Mode == agentapi.MountRO {
		return row, nil
	}
	var waiting agentapi.Uploads
	for _, n := range c.Nodes {
		if u := n.Progress.Uploads; u != nil {
			waiting.Files += u.Files
			waiting.Bytes += u.Bytes
			waiting.Problem = cmp.Or(waiting.Problem, u.Problem)
		}
	}
	row.Pending = "nothing"
	if waiting.Files > 0 {
		row.Pending = fmt.Sprintf("%s, %s to upload", view.Plural(waiting.Files, "file", "files"), view.Bytes(waiting.Bytes))
		row.Problem = cmp.Or(row.Problem, waiting.Problem)
	}
	return row, nil
}

// fill sets what the volume says. Only of its writer the host reports what is not durable yet.
func (r *MountRow) fill(x volume.Volume, c cluster.Cluster, now time.Time) {
	r.Name = x.Name
	if x.DurableTo != nil {
		r.Durable, r.Age = x.DurableTo.UTC().Format(time.DateTime), view.Ago(now.Sub(*x.DurableTo).Truncate(time.Second))
	}
	r.Consistency = map[string]string{
		"exact": "all files of one moment", "per_file": "each file of one moment",
	}[x.Consistency]
	if r.Mode == agentapi.MountRO || x.Cluster != c.ID {
		if x.ClusterName != "" && x.ClusterEnd == nil {
			r.Note = "written by " + x.ClusterName
		}
		return
	}
	r.Requested, r.MaySnapshot, r.Problem = x.Requested, !c.State.Ended(), x.Problem
	switch {
	case x.ReportedAt == nil:
		r.Pending = "not reported"
	case x.Pending == 0:
		r.Pending = "nothing"
	default:
		r.Pending = view.Bytes(x.Pending)
		if x.ETA > 0 {
			r.Pending += fmt.Sprintf(", durable in about %d s", int(x.ETA.Seconds()))
		}
	}
}

// snapshotMount requests a snapshot of a volume that the cluster writes.
func (s *Pages) snapshotMount(v *page.Visit) error {
	cl, err := id.Parse[id.Cluster](chi.URLParam(v.R, "id"))
	if err != nil {
		return fault.New(fault.NotFound, "cluster not found")
	}
	vol, err := id.Parse[id.Volume](v.R.PostFormValue("volume"))
	if err != nil {
		return fault.New(fault.NotFound, "volume not found")
	}
	_, err = s.Volumes.Snapshots.Request(v.R.Context(), v.Who, vol)
	return s.after(v, cl, "#mounts", err)
}
