package web

import (
	"net/url"
	"strings"

	"github.com/go-chi/chi/v5"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/web/view"
)

// allDocuments lists what was issued to every organisation, for platform operators.
func (s *Web) allDocuments(v *visit) error {
	out, f, err := documentFilter(v)
	if err != nil {
		return err
	}
	if number := strings.ToUpper(out.Query); number != "" {
		if _, _, err := s.Statements.AnyDocument(v.r.Context(), v.who, number); err == nil {
			return back(v, "/admin/documents/"+url.PathEscape(number))
		} else if !fault.Is(err, fault.NotFound) {
			return err
		}
		if f.Org, err = id.Parse[id.Org](out.Query); err != nil || f.Org.IsZero() {
			f.Org, out.Error = id.Org{}, "No document has this number, and it is not the id of an organisation."
		}
	}
	rows, err := s.Statements.AllDocuments(v.r.Context(), v.who, f, adminRows+1)
	if err != nil {
		return noSuchPage(err)
	}
	out.Rows, out.Next = documentRows(v, rows, "/admin/documents/")
	return s.render(v, view.AllDocumentsPage(v.page("Documents", "desk"), out))
}

func (s *Web) anyDocumentPage(v *visit) error {
	d, corrected, err := s.Statements.AnyDocument(v.r.Context(), v.who, chi.URLParam(v.r, "number"))
	if err != nil {
		return err
	}
	return showDocument(v, d, corrected, "/admin/documents")
}
