package web

import (
	"strconv"
	"strings"

	"github.com/go-chi/chi/v5"

	"github.com/musterhq/muster/internal/billing/document"
	"github.com/musterhq/muster/internal/billing/statement"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/web/view"
)

// documents lists what was issued to the visitor's organisation.
func (s *Web) documents(v *visit) error {
	out, f, err := documentFilter(v)
	if err != nil {
		return err
	}
	rows, err := s.Statements.OrgDocuments(v.r.Context(), v.who.Org, f, adminRows+1)
	if err != nil {
		return noSuchPage(err)
	}
	out.Rows, out.Next = documentRows(v, rows, "/documents/")
	return s.render(v, view.DocumentsPage(v.page("Documents", "billing"), out))
}

// documentFilter reads which documents the visitor wants to see.
func documentFilter(v *visit) (view.Documents, document.Filter, error) {
	out := view.Documents{
		Series: v.r.FormValue("series"),
		Year:   strings.TrimSpace(v.r.FormValue("year")),
		Query:  strings.TrimSpace(v.r.FormValue("q")),
	}
	f := document.Filter{Series: document.Series(out.Series), Before: v.r.FormValue("after")}
	if out.Year != "" {
		var err error
		if f.Year, err = strconv.Atoi(out.Year); err != nil || f.Year < 2000 || f.Year > 9999 {
			return out, f, fault.New(fault.NotFound, "there are no documents of this year: enter a year such as 2026")
		}
	}
	return out, f, nil
}

// noSuchPage turns a wrong filter in an address into a page that is not there.
func noSuchPage(err error) error {
	if fault.Is(err, fault.Invalid) {
		return fault.New(fault.NotFound, "there is no such page")
	}
	return err
}

func documentRows(v *visit, rows []statement.Document, path string) (out []view.DocumentRow, next string) {
	if len(rows) > adminRows {
		rows = rows[:adminRows]
		next = older(v, rows[adminRows-1].Number)
	}
	for _, d := range rows {
		out = append(out, view.DocumentRow{
			Number:   d.Number,
			Kind:     view.SeriesName(string(d.Series)),
			Date:     d.Date,
			Zone:     d.Zone,
			Party:    d.Party,
			Corrects: d.Corrects,
			Org:      d.Org.String(),
			OrgName:  d.OrgName,
			Total:    d.Total,
			Currency: d.Currency,
			Erased:   d.Erased,
			Link:     path + d.Number,
		})
	}
	return out, next
}

// documentPage shows one of the organisation's documents on a sheet of paper.
func (s *Web) documentPage(v *visit) error {
	d, corrected, err := s.Statements.OrgDocument(v.r.Context(), v.who.Org, chi.URLParam(v.r, "number"))
	if err != nil {
		return err
	}
	return showDocument(v, d, corrected, "/documents")
}

func showDocument(v *visit, d statement.Document, corrected []string, list string) error {
	ctx := v.r.Context()
	out := view.Paper{
		Number:      d.Number,
		Kind:        view.SeriesName(string(d.Series)),
		Date:        d.Date,
		Zone:        d.Zone,
		Corrects:    d.Corrects,
		CorrectedBy: corrected,
		List:        list,
		Erased:      d.Erased,
	}
	var err error
	switch {
	case d.Erased:
	case d.TopUp != nil:
		out.Receipt, err = v.Site.Payments.Receipt(ctx, d.Org, *d.TopUp)
	case d.Series == document.CreditNote:
		out.CreditNote, err = v.Site.Payments.CreditNote(ctx, d.Org, d.Number)
		if out.Corrects == "" {
			out.Corrects = out.CreditNote.Corrects
		}
	default:
		out.SelfBill, err = v.Site.Payouts.SelfBill(ctx, d.Org, d.Number)
	}
	if err != nil {
		return err
	}
	p := v.page(out.Kind+" "+d.Number, "")
	return v.Site.render(v, view.PaperPage(p, out))
}
