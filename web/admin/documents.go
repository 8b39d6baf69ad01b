package admin

import (
	"net/url"
	"strings"

	"github.com/go-chi/chi/v5"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/web/billing"
	"github.com/musterhq/muster/web/page"
)

// documentPages are the documents of all organisations.
type documentPages struct {
	*page.Site
}

// allDocuments lists the documents of all organisations.
func (s *documentPages) allDocuments(v *page.Visit) error {
	out, f, err := billing.DocumentFilter(v)
	if err != nil {
		return err
	}
	if number := strings.ToUpper(out.Query); number != "" {
		if _, _, err := s.Statements.AnyDocument(v.R.Context(), v.Who, number); err == nil {
			return page.Back(v, "/admin/documents/"+url.PathEscape(number))
		} else if !fault.Is(err, fault.NotFound) {
			return err
		}
		if f.Org, err = id.Parse[id.Org](out.Query); err != nil || f.Org.IsZero() {
			f.Org, out.Error = id.Org{}, "No document has this number, and it is not the id of an organisation."
		}
	}
	rows, err := s.Statements.AllDocuments(v.R.Context(), v.Who, f, page.AdminRows+1)
	if err != nil {
		return billing.NoSuchPage(err)
	}
	out.Rows, out.Next = billing.DocumentRows(v, rows, "/admin/documents/")
	return s.Render(v, AllDocumentsPage(v.Page("Documents", "admin"), out))
}

func (s *documentPages) anyDocumentPage(v *page.Visit) error {
	d, corrected, err := s.Statements.AnyDocument(v.R.Context(), v.Who, chi.URLParam(v.R, "number"))
	if err != nil {
		return err
	}
	return billing.ShowDocument(v, d, corrected, "/admin/documents")
}
