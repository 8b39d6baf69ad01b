package web

import (
	"github.com/musterhq/muster/internal/erasure"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/web/view"
)

// exportAccount sends what is kept of the visitor, as a file.
func (s *Web) exportAccount(v *visit) error {
	data, err := s.Erasure.Export(v.r.Context(), v.who)
	if err != nil {
		return err
	}
	v.w.Header().Set("Content-Type", "application/json")
	v.w.Header().Set("Content-Disposition", `attachment; filename="my-data.json"`)
	_, err = v.w.Write(data)
	return err
}

func (s *Web) deletionPage(v *visit) error { return s.showDeletion(v, nil) }

func (s *Web) showDeletion(v *visit, errs map[string]string) error {
	standing, err := s.Erasure.Standing(v.r.Context(), v.who)
	if err != nil {
		return err
	}
	return s.render(v, view.DeletionPage(v.page("Delete your account", ""), view.Deletion{
		Email:    v.who.Email,
		Standing: standing,
		Errors:   errs,
	}))
}

func (s *Web) deleteAccount(v *visit) error {
	err := s.Erasure.Delete(v.r.Context(), v.who, erasure.Request{
		Password: v.r.FormValue("password"), Confirm: v.r.FormValue("confirm"), GiveUp: v.r.FormValue("give_up") != ""})
	if fault.Is(err, fault.Conflict) {
		err = fault.InvalidField("", "%s", fault.From(err).Message)
	}
	if err != nil {
		return s.again(v, err, func(errs map[string]string) error { return s.showDeletion(v, errs) })
	}
	return back(v, "/signin")
}
