// Package volumes holds the pages of volumes, buckets and shared file systems: the lists, one volume with its snapshots
// and files, and one bucket.
package volumes

import (
	"encoding/base64"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/go-chi/chi/v5"

	"github.com/musterhq/muster/internal/data/volume"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/httpbody"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/web/page"
	"github.com/musterhq/muster/web/view"
)

// Pages are the pages of volumes, buckets and shared file systems. Make them with New.
type Pages struct {
	*page.Site
}

// New returns the pages of a site; it starts nothing.
func New(site *page.Site) *Pages {
	return &Pages{Site: site}
}

// Routes mounts all pages of this package.
func (s *Pages) Routes(m page.Mux) {
	m.Get("/volumes", page.ReadClusters, s.list)
	m.Post("/volumes", page.WriteClusters, s.create)
	m.Get("/volumes/{id}", page.ReadClusters, s.show)
	m.Get("/volumes/{id}/content", page.ReadClusters, s.content)
	m.Post("/volumes/{id}/snapshots", page.WriteClusters, s.snapshot)
	m.Post("/volumes/{id}/restore", page.WriteClusters, s.restore)
	m.Post("/volumes/{id}/delete", page.WriteClusters, s.remove)
	s.bucketRoutes(m)
	s.sharedRoutes(m)
}

func mayWrite(v *page.Visit) bool { return v.Who.CanAny("clusters") }

func (s *Pages) list(v *page.Visit) error { return s.showList(v, Form{SizeGB: "100"}) }

func (s *Pages) showList(v *page.Visit, f Form) error {
	all, err := s.Volumes.Catalog.List(v.R.Context(), v.Who.Org)
	if err != nil {
		return err
	}
	l := List{Offered: s.Volumes.Catalog.Offered(), MayWrite: mayWrite(v), Form: f}
	for _, x := range all {
		l.Rows = append(l.Rows, rowOf(x))
	}
	return s.Render(v, ListPage(v.Page("Volumes", "data"), l))
}

func rowOf(x volume.Volume) Row {
	r := Row{
		ID: x.ID.String(), Name: x.Name, Size: fmt.Sprintf("%d GB", x.SizeLimit/volume.GB), Stored: view.Bytes(x.StoredBytes),
		PerHour: view.Price(x.PerHour),
		State:   view.State{Word: "No snapshot", Icon: "warn", Tone: "warn"},
		Durable: "There is no snapshot yet, so its files do not survive a lost host.",
	}
	if x.ClusterName != "" {
		r.Writer = "written by " + x.ClusterName
	}
	if x.ClusterEnd != nil {
		r.Writer = "last " + r.Writer
	}
	r.Owed = owedOf(x)
	if x.DurableTo != nil {
		at := x.DurableTo.UTC().Format(time.DateTime)
		r.State = view.State{Word: at, Icon: "check", Tone: "ok"}
		r.Durable = "Durable up to " + at + ": what was written until then survives every host."
	}
	if x.HiddenAt != nil {
		r.State = view.State{Word: "Hidden", Icon: "error", Tone: "bad"}
	}
	return r
}

// owedOf describes what is not paid for a volume and what happens if it stays so; "": nothing is owed.
func owedOf(x volume.Volume) string {
	if x.HidesAt == nil || x.ErasesAt == nil {
		return ""
	}
	day := func(t time.Time) string { return t.UTC().Format("2 January 2006") }
	if x.HiddenAt != nil {
		return fmt.Sprintf("%s are owed for what it stored. It is hidden until that is paid, and erased on %s.",
			view.CentsUp(x.Owed), day(*x.ErasesAt))
	}
	return fmt.Sprintf("%s are owed for what it stored. If that is not paid, it is hidden on %s and erased on %s.",
		view.CentsUp(x.Owed), day(*x.HidesAt), day(*x.ErasesAt))
}

func (s *Pages) create(v *page.Visit) error {
	f := Form{Name: strings.TrimSpace(v.R.PostFormValue("name")), SizeGB: strings.TrimSpace(v.R.PostFormValue("size_gb"))}
	size, err := strconv.ParseInt(f.SizeGB, 10, 64)
	if err != nil {
		err = fault.InvalidField("size_gb", "Enter a whole number of GB.")
	}
	var made volume.Volume
	if err == nil {
		made, _, err = s.Volumes.Catalog.Create(v.R.Context(), v.Who, volume.NewVolume{Name: f.Name, SizeGB: size},
			v.Once("name", "size_gb"))
	}
	if err != nil {
		return s.Again(v, err, func(errs map[string]string) error {
			f.Errors = errs
			return s.showList(v, f)
		})
	}
	return page.Back(v, "/volumes/"+made.ID.String())
}

func volumeOf(v *page.Visit) (id.Volume, error) {
	vol, err := id.Parse[id.Volume](chi.URLParam(v.R, "id"))
	if err != nil {
		return vol, fault.New(fault.NotFound, "volume not found")
	}
	return vol, nil
}

func (s *Pages) show(v *page.Visit) error {
	vol, err := volumeOf(v)
	if err != nil {
		return err
	}
	return s.showVolume(v, vol, "")
}

func (s *Pages) showVolume(v *page.Visit, vol id.Volume, problem string) error {
	x, err := s.Volumes.Catalog.Get(v.R.Context(), v.Who.Org, vol)
	if err != nil {
		return err
	}
	d := Detail{Row: rowOf(x), Facts: s.factsOf(x), Problem: x.Problem, MayWrite: mayWrite(v), Error: problem,
		Mounted: x.ReportedAt != nil}
	snaps, err := s.Volumes.Snapshots.List(v.R.Context(), v.Who.Org, vol)
	if err != nil {
		return err
	}
	for _, n := range snaps {
		lease := ""
		if !n.Lease.IsZero() {
			lease = n.Lease.String()
		}
		d.Snapshots = append(d.Snapshots, SnapshotRow{
			Seq: strconv.FormatInt(n.Seq, 10), Shows: n.CutAt.UTC().Format(time.DateTime), Cause: n.Cause, Label: n.Label,
			Size: view.Bytes(n.Bytes), Added: view.Bytes(n.Added), Files: strconv.FormatInt(n.Files, 10),
			Head: n.Seq == x.HeadSeq, Part: !n.Whole, Lost: n.Lost > 0, Lease: lease,
		})
	}
	d.Flaw = flawOf(snaps)
	s.files(v, x, &d)
	return s.Render(v, DetailPage(v.Page(x.Name, "data"), d))
}

// flawOf says which snapshots, newest first, cannot be restored whole, and which is the last one that can; "": all can.
func flawOf(snaps []volume.Snapshot) string {
	var bad []string
	good := ""
	for _, n := range snaps {
		switch seq := strconv.FormatInt(n.Seq, 10); {
		case n.Lost > 0:
			bad = append(bad, seq)
		case good == "":
			good = "The last one that can is " + seq + ", of " + n.CutAt.UTC().Format(time.DateTime) + ". "
		}
	}
	if len(bad) == 0 {
		return ""
	}
	if good == "" {
		good = "None can. "
	}
	if len(bad) > 20 {
		bad = append(bad[:20], "older ones")
	}
	return "Snapshots that cannot be restored whole: " + strings.Join(bad, ", ") + ". " + good +
		"Files that do not need the part can be read. If a cluster has the volume, its next snapshot stores the part again."
}

func (s *Pages) factsOf(x volume.Volume) []Fact {
	var out []Fact
	add := func(name, value string) {
		if value != "" {
			out = append(out, Fact{name, value})
		}
	}
	add("Id", x.ID.String())
	add("Size", fmt.Sprintf("%d GB", x.SizeLimit/volume.GB))
	add("Stored", view.Bytes(x.StoredBytes)+", with all snapshots")
	add("Price per hour", view.Price(x.PerHour)+" USD")
	add("Price of storage", s.StoragePrice())
	if x.Sharing > 1 {
		add("Shares its data with", view.Plural(int(x.Sharing-1), "other volume", "other volumes"))
	}
	add("Label", x.Label)
	add("Consistency", map[string]string{
		"exact": "all files are of one moment", "per_file": "each file is of one moment",
	}[x.Consistency])
	if x.ClusterEnd == nil {
		add("Written by", x.ClusterName)
	} else {
		add("Last written by", x.ClusterName)
	}
	if x.Pending > 0 {
		pending := view.Bytes(x.Pending)
		if x.ETA > 0 {
			pending += ", durable in about " + view.Dur(x.ETA)
		}
		add("Not durable yet", pending)
	}
	add("Keeps", fmt.Sprintf("the last %d snapshots, the newest of each hour for a day, labelled ones for 30 days",
		x.Keep))
	return out
}

// files fills in the folder that the query names.
func (s *Pages) files(v *page.Visit, x volume.Volume, d *Detail) {
	if x.HeadSeq == 0 {
		d.FilesNote = "The files of the first snapshot appear here."
		return
	}
	d.Path = strings.Trim(path.Clean("/"+v.R.URL.Query().Get("path")), "/")
	base := "/volumes/" + x.ID.String()
	link := func(rest, p string) string { return base + rest + "?path=" + url.QueryEscape(p) }
	d.Up = link("", path.Dir("/"+d.Path)) + "#files"
	tree, err := s.Volumes.Files.Tree(v.R.Context(), v.Who.Org, x.ID, 0)
	if err != nil {
		d.FilesNote = sentence(err)
		return
	}
	after, err := base64.RawURLEncoding.DecodeString(v.R.URL.Query().Get("after"))
	if err != nil {
		after = nil
	}
	const most = 1000
	files, next, err := tree.List(v.R.Context(), d.Path, string(after), most)
	if err != nil {
		d.FilesNote = sentence(err)
		return
	}
	if next != "" {
		d.More = link("", d.Path) + "&after=" + base64.RawURLEncoding.EncodeToString([]byte(next)) + "#files"
	}
	for _, f := range files {
		row := FileRow{Name: f.Name, Changed: time.Unix(0, f.MTime).UTC().Format(time.DateTime)}
		switch f.Kind {
		case "dir":
			row.Name += "/"
			row.Link = link("", path.Join(d.Path, f.Name)) + "#files"
		case "symlink":
			row.Name += " → " + f.Target
		default:
			row.Size = view.Bytes(f.Size)
			row.Link = link("/content", path.Join(d.Path, f.Name))
		}
		d.Files = append(d.Files, row)
	}
}

// sentence is what a page may show of an error.
func sentence(err error) string {
	if f := fault.From(err); f != nil {
		return view.Sentence(f.Message)
	}
	return "The files cannot be read now."
}

// content sends a file of the last snapshot as a download: a page of a renter's file would run in our origin.
func (s *Pages) content(v *page.Visit) error {
	vol, err := volumeOf(v)
	if err != nil {
		return err
	}
	tree, err := s.Volumes.Files.Tree(v.R.Context(), v.Who.Org, vol, 0)
	if err != nil {
		return err
	}
	out, begun := httpbody.NewAnswer(v.W), false
	err = tree.Send(v.R.Context(), v.R.URL.Query().Get("path"), func(f volume.File) io.Writer {
		begun = true
		h := v.W.Header()
		h.Set("Content-Type", "application/octet-stream")
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Content-Length", strconv.FormatInt(f.Size, 10))
		h.Set("Content-Disposition", mime.FormatMediaType("attachment", map[string]string{"filename": f.Name}))
		return out
	})
	if err != nil && begun {
		s.Log.Warn("a file of a volume could not be sent", "volume", vol, "err", err)
		panic(http.ErrAbortHandler) // the length is announced: what is missing must not look like the end
	}
	out.End()
	return err
}

func (s *Pages) snapshot(v *page.Visit) error {
	vol, err := volumeOf(v)
	if err == nil {
		_, err = s.Volumes.Snapshots.Request(v.R.Context(), v.Who, vol)
	}
	return s.after(v, vol, err)
}

func (s *Pages) restore(v *page.Visit) error {
	vol, err := volumeOf(v)
	if err != nil {
		return err
	}
	seq, err := strconv.ParseInt(v.R.PostFormValue("seq"), 10, 64)
	if err != nil {
		return fault.New(fault.NotFound, "snapshot not found")
	}
	_, _, err = s.Volumes.Snapshots.Restore(v.R.Context(), v.Who, vol, seq, v.Once("seq"))
	return s.after(v, vol, err)
}

// after shows the volume again, with why it was not changed.
func (s *Pages) after(v *page.Visit, vol id.Volume, err error) error {
	if fault.Is(err, fault.Conflict) {
		v.Status = http.StatusConflict
		return s.showVolume(v, vol, sentence(err))
	}
	if err != nil {
		return err
	}
	return page.Back(v, "/volumes/"+vol.String())
}

func (s *Pages) remove(v *page.Visit) error {
	vol, err := volumeOf(v)
	if err != nil {
		return err
	}
	if err := s.Volumes.Catalog.Delete(v.R.Context(), v.Who, vol); err != nil {
		return s.after(v, vol, err)
	}
	return page.Back(v, "/volumes")
}
