package volumes

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/go-chi/chi/v5"

	"github.com/musterhq/muster/internal/data/sharedfs"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/web/page"
	"github.com/musterhq/muster/web/view"
)

func (s *Pages) sharedRoutes(m page.Mux) {
	m.Get("/shared", page.ReadClusters, s.shared)
	m.Post("/shared", page.WriteHosts, s.declareShared)
	m.Post("/shared/{id}/withdraw", page.WriteHosts, s.withdrawShared)
	m.Post("/shared/{id}/erase", page.WriteClusters, s.eraseShared)
}

func (s *Pages) shared(v *page.Visit) error { return s.showShared(v, SharedForm{}) }

func (s *Pages) showShared(v *page.Visit, f SharedForm) error {
	all, err := s.Shared.List(v.R.Context(), v.Who.Org)
	if err != nil {
		return err
	}
	f.Once, f.Kinds = page.NewOnce(), sharedfs.Kinds
	l := SharedList{MayErase: mayWrite(v), MayDeclare: v.Who.CanAny("hosts"), Form: f}
	for _, x := range all {
		l.Rows = append(l.Rows, s.sharedRow(x))
	}
	return s.Render(v, SharedPage(v.Page("Shared file systems", "data"), l))
}

func (s *Pages) sharedRow(f sharedfs.FS) SharedRow {
	r := SharedRow{
		ID: f.ID.String(), Name: f.Name, Kind: f.Kind, Own: f.Own, Quota: fmt.Sprintf("%d GB", f.QuotaGB),
		Hosts: view.State{Word: view.Plural(f.Hosts, "host", "hosts"), Icon: "check", Tone: "ok"},
		Where: strings.Join(f.Regions, ", "),
	}
	if f.Hosts == 0 {
		r.Hosts = view.State{Word: "No host has it now", Icon: "warn", Tone: "warn"}
	}
	for _, p := range f.Problems {
		r.Problems = append(r.Problems, Fact{p.Host, view.Sentence(p.Problem)})
	}
	d := f.Data
	if d == nil {
		return r
	}
	r.Data, r.InUse = view.Bytes(d.UsedBytes), d.Clusters > 0
	switch {
	case d.Closed:
		r.Note = "It is over the quota, and read-only until some of it is deleted."
	case d.Problem != "":
		r.Note = view.Sentence(d.Problem)
	case r.InUse:
		r.Note = "Mounted in " + view.Plural(d.Clusters, "cluster", "clusters") + "."
	case !d.DeleteAt.IsZero():
		r.Note = "It is deleted on " + d.DeleteAt.UTC().Format("2 January 2006") + " unless a cluster uses it before."
	}
	return r
}

func (s *Pages) declareShared(v *page.Visit) error {
	value := func(name string) string { return strings.TrimSpace(v.R.PostFormValue(name)) }
	f := SharedForm{Name: value("name"), Kind: value("kind"), QuotaGB: value("quota_gb")}
	quota, _ := strconv.ParseInt(f.QuotaGB, 10, 64) // 0 is refused
	_, _, err := s.Shared.Declare(v.R.Context(), v.Who, sharedfs.NewFS{Name: f.Name, Kind: f.Kind, QuotaGB: quota},
		v.Once("name", "kind", "quota_gb"))
	if err != nil {
		return s.Again(v, err, func(errs map[string]string) error {
			f.Errors = errs
			return s.showShared(v, f)
		})
	}
	return page.Back(v, "/shared")
}

func sharedOf(v *page.Visit) (id.SharedFS, error) {
	f, err := id.Parse[id.SharedFS](chi.URLParam(v.R, "id"))
	if err != nil {
		return f, fault.New(fault.NotFound, "shared file system not found")
	}
	return f, nil
}

func (s *Pages) withdrawShared(v *page.Visit) error {
	f, err := sharedOf(v)
	if err != nil {
		return err
	}
	if err := s.Shared.Withdraw(v.R.Context(), v.Who, f); err != nil {
		return s.refusedShared(v, err)
	}
	return page.Back(v, "/shared")
}

func (s *Pages) eraseShared(v *page.Visit) error {
	f, err := sharedOf(v)
	if err != nil {
		return err
	}
	if err := s.Shared.Erase(v.R.Context(), v.Who, f); err != nil {
		return s.refusedShared(v, err)
	}
	return page.Back(v, "/shared")
}

// refusedShared shows the page with why something was refused that is in use.
func (s *Pages) refusedShared(v *page.Visit, err error) error {
	if !fault.Is(err, fault.Conflict) {
		return err
	}
	v.Status = fault.KindOf(err).HTTPStatus()
	return s.showShared(v, SharedForm{Errors: map[string]string{"": sentence(err)}})
}
