package accounts

import (
	"github.com/musterhq/muster/internal/erasure"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/web/page"
)

// deletionPages export a person's data, and delete their account.
type deletionPages struct {
	*page.Site
}

// exportAccount sends the visitor's data as a file.
func (s *deletionPages) exportAccount(v *page.Visit) error {
	data, err := s.Erasure.Export(v.R.Context(), v.Who)
	if err != nil {
		return err
	}
	v.W.Header().Set("Content-Type", "application/json")
	v.W.Header().Set("Content-Disposition", `attachment; filename="my-data.json"`)
	_, err = v.W.Write(data)
	return err
}

func (s *deletionPages) deletionPage(v *page.Visit) error { return s.showDeletion(v, nil) }

func (s *deletionPages) showDeletion(v *page.Visit, errs map[string]string) error {
	standing, err := s.Erasure.Standing(v.R.Context(), v.Who)
	if err != nil {
		return err
	}
	return s.Render(v, DeletionPage(v.Page("Delete your account", ""), Deletion{
		Email:    v.Who.Email,
		Standing: standing,
		Errors:   errs,
	}))
}

func (s *deletionPages) deleteAccount(v *page.Visit) error {
	err := s.Erasure.Delete(v.R.Context(), v.Who, erasure.Request{
		Password: v.R.FormValue("password"), Confirm: v.R.FormValue("confirm"), GiveUp: v.R.FormValue("give_up") != ""})
	if fault.Is(err, fault.Conflict) {
		err = fault.InvalidField("", "%s", fault.From(err).Message)
	}
	if err != nil {
		return s.Again(v, err, func(errs map[string]string) error { return s.showDeletion(v, errs) })
	}
	return page.Back(v, "/signin")
}
