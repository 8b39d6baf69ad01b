package offers

import (
	"fmt"
	"math"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/data/bucket"
	"github.com/musterhq/muster/internal/data/sharedfs"
	"github.com/musterhq/muster/internal/data/volume"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/fleet/market"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/web/page"
	"github.com/musterhq/muster/web/view"
)

// MountRow is a volume or a bucket that the cluster is to have, as typed: Volume is the id of either. Every is in
// minutes.
type MountRow struct{ Volume, Path, Mode, Every string }

// modeLazy is the mode of the form for a volume that is read on demand: in the spec, it is ro and lazy.
const modeLazy = "lazy"

// Empty reports whether nothing was chosen in the row: a path that the form itself filled in is no choice.
func (r MountRow) Empty() bool {
	return r.Volume == "" && r.Every == "" && (r.Path == "" || filledPath.MatchString(r.Path))
}

// filledPath matches what freePath returns.
var filledPath = regexp.MustCompile(`^/data[0-9]*$`)

// freePath returns the path that the form fills into a row after these.
func freePath(rows []MountRow) string {
	for n := 1; ; n++ {
		p := "/data"
		if n > 1 {
			p += strconv.Itoa(n)
		}
		if !slices.ContainsFunc(rows, func(r MountRow) bool { return r.Path == p }) {
			return p
		}
	}
}

func emptyRow(after []MountRow) MountRow {
	return MountRow{Path: freePath(after), Mode: agentapi.MountRW}
}

// typedMounts returns all rows of the request. Each row sends all its fields, also the empty ones.
func typedMounts(v *page.Visit) []MountRow {
	_ = v.R.FormValue("mount_volume") // parses the form
	volumes := v.R.Form["mount_volume"]
	rows := make([]MountRow, min(len(volumes), market.MaxMounts+1)) // one too many is refused: no need to keep more
	for i := range rows {
		at := func(field string) string {
			if all := v.R.Form["mount_"+field]; i < len(all) {
				return strings.TrimSpace(all[i])
			}
			return ""
		}
		rows[i] = MountRow{Volume: at("volume"), Path: at("path"), Mode: at("mode"), Every: at("every")}
	}
	return rows
}

// givenMounts returns the rows without the empty ones: their places are those of the spec's mounts, which faults name.
func givenMounts(rows []MountRow) []MountRow {
	return slices.DeleteFunc(rows, MountRow.Empty)
}

// changeRows shows the form with a row more, or with one less. It is a plain form post: it needs no JavaScript, and the
// environment, which may hold secrets, is in no URL.
func (s *Pages) changeRows(v *page.Visit) error {
	m := Market{Query: v.R.FormValue("q"), Spec: specForm(v)}
	rows := typedMounts(v)
	if i, err := strconv.Atoi(v.R.PostFormValue("remove_mount")); err == nil && i >= 0 && i < len(rows) {
		rows = slices.Delete(rows, i, i+1)
	}
	m.Spec.Mounts = givenMounts(rows)
	if v.R.PostFormValue("add_mount") != "" && len(m.Spec.Mounts) < market.MaxMounts {
		m.Spec.Mounts = append(m.Spec.Mounts, emptyRow(m.Spec.Mounts))
	}
	return s.showMarket(v, m)
}

// addMountRows adds the rows to the fields of a link.
func addMountRows(q url.Values, rows []MountRow) {
	for _, r := range rows {
		q.Add("mount_volume", r.Volume)
		q.Add("mount_path", r.Path)
		q.Add("mount_mode", r.Mode)
		q.Add("mount_every", r.Every)
	}
}

// mountRows returns the rows that result in the mounts.
func mountRows(mounts []market.Mount) []MountRow {
	var rows []MountRow
	for _, m := range mounts {
		r := MountRow{Volume: m.Volume.String(), Path: m.Path, Mode: m.Mode}
		if m.Lazy && m.Mode == agentapi.MountRO {
			r.Mode = modeLazy
		}
		if !m.Bucket.IsZero() {
			r.Volume = m.Bucket.String()
		}
		if m.Shared != "" {
			r.Volume = sharedPrefix + m.Shared
		}
		if m.Snapshot.EveryS > 0 {
			r.Every = strconv.FormatFloat(float64(m.Snapshot.EveryS)/60, 'g', -1, 64)
		}
		rows = append(rows, r)
	}
	return rows
}

// sharedPrefix marks the name of a shared file system in a row's choice.
const sharedPrefix = "shared:"

// mountsOf parses the rows. What the form does not show is as in the mount of the same volume that the form was filled
// from.
func mountsOf(rows []MountRow, was []market.Mount, bad *fault.Fields) []market.Mount {
	var mounts []market.Mount
	for i, r := range rows {
		at := fmt.Sprintf("mounts[%d]", i)
		if bkt, err := id.Parse[id.Bucket](r.Volume); err == nil {
			mounts = append(mounts, bucketMount(bkt, r, was))
			if r.Every != "" {
				bad.Add(at+".snapshot.every_s", "is for volumes only: leave it empty")
			}
			continue
		}
		if name, ok := strings.CutPrefix(r.Volume, sharedPrefix); ok {
			mounts = append(mounts, market.Mount{Shared: name, Path: r.Path, Mode: r.Mode})
			if r.Every != "" {
				bad.Add(at+".snapshot.every_s", "is for volumes only: leave it empty")
			}
			continue
		}
		m := market.Mount{Snapshot: market.SnapshotPolicy{OnNotice: true, OnEnd: true}}
		vol, err := id.Parse[id.Volume](r.Volume)
		switch {
		case r.Volume == "":
			bad.Add(at+".volume", "Choose a volume, or remove this one.")
		case err != nil:
			bad.Add(at+".volume", "is not the id of a volume")
		default:
			if k := slices.IndexFunc(was, func(x market.Mount) bool { return x.Volume == vol }); k >= 0 {
				m = was[k]
			}
		}
		m.Volume, m.Path, m.Mode, m.Snapshot.EveryS = vol, r.Path, r.Mode, 0
		if m.Lazy = r.Mode == modeLazy; m.Lazy {
			m.Mode = agentapi.MountRO
		}
		switch {
		case !m.Lazy:
			m.CacheGB = 0
		case m.CacheGB == 0:
			m.CacheGB = market.DefaultCacheGB
		}
		if minutes, ok := decimal(r.Every, at+".snapshot.every_s", bad); ok {
			m.Snapshot.EveryS = int(math.Round(minutes * 60))
			if m.Snapshot.EveryS == 0 && minutes > 0 {
				m.Snapshot.EveryS = 1 // too short, and refused: 0 would mean none
			}
		}
		mounts = append(mounts, m)
	}
	return mounts
}

// bucketMount is the mount of a bucket in a row.
func bucketMount(bkt id.Bucket, r MountRow, was []market.Mount) market.Mount {
	m := market.Mount{CacheGB: market.DefaultCacheGB}
	if k := slices.IndexFunc(was, func(x market.Mount) bool { return x.Bucket == bkt }); k >= 0 {
		m = was[k]
	}
	m.Bucket, m.Path, m.Mode = bkt, r.Path, r.Mode
	if r.Mode == modeLazy { // a bucket is always read when it is needed
		m.Mode = agentapi.MountRO
	}
	return m
}

var otherRow = regexp.MustCompile(`mounts\[(\d+)\]\.path`)

// nameMounts returns the faults of a spec with those about mounts in the words of the form. A field that mountsOf has
// named already is left out.
func nameMounts(found, named fault.Fields) (out fault.Fields) {
	for _, f := range found {
		if !strings.HasPrefix(f.Location, "mounts[") {
			out = append(out, f)
			continue
		}
		if slices.ContainsFunc(named, func(n fault.Field) bool { return n.Location == f.Location }) {
			continue
		}
		f.Location = strings.Replace(f.Location, ".bucket", ".volume", 1) // one field of the form
		f.Location = strings.Replace(f.Location, ".shared", ".volume", 1)
		message := otherRow.ReplaceAllStringFunc(f.Message, func(m string) string {
			n, _ := strconv.Atoi(otherRow.FindStringSubmatch(m)[1])
			return fmt.Sprintf("the path of volume %d", n+1)
		})
		if strings.HasSuffix(f.Location, ".every_s") && !strings.Contains(message, "volumes only") {
			message = fmt.Sprintf("want %d to %d minutes", market.MinSnapshotEvery/60, market.MaxSnapshotEvery/60)
		}
		out.Add(f.Location, "%s", message)
	}
	return out
}

// MountError returns the message about a field of a row.
func (f SpecForm) MountError(row int, field string) string {
	return f.Errors[fmt.Sprintf("mounts[%d].%s", row, field)]
}

// readVolumes reads what the form offers to mount: the volumes and buckets of the visitor's organisation.
func (s *Pages) readVolumes(v *page.Visit, m *Market) error {
	if !v.SignedIn() || !v.Who.CanAny(account.WriteClusters...) {
		return nil
	}
	buckets, err := s.Buckets.List(v.R.Context(), v.Who.Org)
	if err != nil {
		return err
	}
	var all []volume.Volume
	if s.Volumes.Catalog.Offered() {
		if all, err = s.Volumes.Catalog.List(v.R.Context(), v.Who.Org); err != nil {
			return err
		}
	}
	shared, err := s.Shared.List(v.R.Context(), v.Who.Org)
	if err != nil {
		return err
	}
	m.Mountable = s.Volumes.Catalog.Offered() || len(buckets) > 0 || slices.ContainsFunc(shared, rentable)
	for _, x := range all {
		o := view.Option{Value: x.ID.String(), Name: x.Name}
		if x.ClusterName != "" && x.ClusterEnd == nil {
			o.Name += ", written by " + x.ClusterName
		}
		m.Volumes = append(m.Volumes, o)
	}
	for _, b := range buckets {
		o := view.Option{Value: b.ID.String(), Name: b.Name + ", your bucket"}
		if b.Mode == bucket.ReadOnly {
			o.Name += ", read only"
		}
		m.Volumes = append(m.Volumes, o)
	}
	for _, f := range shared {
		if rentable(f) {
			m.Volumes = append(m.Volumes, view.Option{Value: sharedPrefix + f.Name,
				Name: fmt.Sprintf("%s, shared by %s, up to %d GB", f.Name, view.Plural(f.Hosts, "host", "hosts"), f.QuotaGB)})
		}
	}
	if len(m.Spec.Mounts) == 0 && len(m.Volumes) > 0 {
		m.Spec.Mounts = []MountRow{emptyRow(nil)}
	}
	return nil
}

// rentable reports whether a cluster can have a shared file system now: no organisation rents from itself.
func rentable(f sharedfs.FS) bool { return f.Hosts > 0 && !f.Own }

// VolumeOptions returns the choices of a row. A volume that is not there any more stays chosen, so that it is not left
// out unnoticed.
func (m Market) VolumeOptions(row MountRow) []view.Option {
	out := append([]view.Option{{Name: "none"}}, m.Volumes...)
	if !slices.ContainsFunc(out, func(o view.Option) bool { return o.Value == row.Volume }) {
		out = append(out, view.Option{Value: row.Volume, Name: row.Volume + ", not found"})
	}
	return out
}

// mountSummary says what a quote mounts, a row for each volume and bucket.
func (s *Pages) mountSummary(v *page.Visit, mounts []market.Mount) ([]SummaryRow, error) {
	if len(mounts) == 0 {
		return nil, nil
	}
	all, err := s.Volumes.Catalog.List(v.R.Context(), v.Who.Org)
	if err != nil {
		return nil, err
	}
	names := map[string]string{}
	for _, x := range all {
		names[x.ID.String()] = x.Name
	}
	buckets, err := s.Buckets.List(v.R.Context(), v.Who.Org)
	if err != nil {
		return nil, err
	}
	for _, b := range buckets {
		names[b.ID.String()] = b.Name
	}
	var rows []SummaryRow
	for i, r := range mountRows(mounts) {
		name, ok := names[r.Volume]
		if mounts[i].Shared != "" {
			name, ok = mounts[i].Shared, true
		}
		if !ok {
			name = r.Volume + ", not found"
		}
		text := name + ", " + modeWords[r.Mode]
		if r.Every != "" {
			text += fmt.Sprintf(", a snapshot every %s min", r.Every)
		}
		what := "Volume at "
		if mounts[i].Lazy {
			text += fmt.Sprintf(", read when needed, %d GB of cache per node", mounts[i].CacheGB)
		}
		if mounts[i].Shared != "" {
			what = "Shared file system at "
		}
		if !mounts[i].Bucket.IsZero() {
			what = "Bucket at "
			text += fmt.Sprintf(", %d GB of cache per node", mounts[i].CacheGB)
		}
		rows = append(rows, SummaryRow{what + r.Path, text})
	}
	return rows, nil
}

var modeWords = map[string]string{agentapi.MountRW: "read and written", agentapi.MountRO: "read only",
	agentapi.MountRanks: "written by every node", modeLazy: "read only"}
