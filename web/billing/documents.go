package billing

import (
	"strconv"
	"strings"

	"github.com/go-chi/chi/v5"

	"github.com/musterhq/muster/internal/billing/document"
	"github.com/musterhq/muster/internal/billing/statement"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/web/page"
)

// documents lists the documents issued to the visitor's organisation.
func (s *Pages) documents(v *page.Visit) error {
	out, f, err := DocumentFilter(v)
	if err != nil {
		return err
	}
	rows, err := s.Statements.OrgDocuments(v.R.Context(), v.Who.Org, f, page.AdminRows+1)
	if err != nil {
		return NoSuchPage(err)
	}
	out.Rows, out.Next = DocumentRows(v, rows, "/documents/")
	return s.Render(v, DocumentsPage(v.Page("Documents", "billing"), out))
}

// DocumentFilter parses the filter in the URL.
func DocumentFilter(v *page.Visit) (Documents, document.Filter, error) {
	out := Documents{
		Series: v.R.FormValue("series"),
		Year:   strings.TrimSpace(v.R.FormValue("year")),
		Query:  strings.TrimSpace(v.R.FormValue("q")),
	}
	f := document.Filter{Series: document.Series(out.Series), Before: v.R.FormValue("after")}
	if out.Year != "" {
		var err error
		if f.Year, err = strconv.Atoi(out.Year); err != nil || f.Year < 2000 || f.Year > 9999 {
			return out, f, fault.New(fault.NotFound, "there are no documents of this year: enter a year such as 2026")
		}
	}
	return out, f, nil
}

// NoSuchPage turns an Invalid fault, caused by a wrong filter in a URL, into NotFound.
func NoSuchPage(err error) error {
	if fault.Is(err, fault.Invalid) {
		return fault.New(fault.NotFound, "page not found")
	}
	return err
}

func DocumentRows(v *page.Visit, rows []statement.Document, path string) (out []DocumentRow, next string) {
	if len(rows) > page.AdminRows {
		rows = rows[:page.AdminRows]
		next = page.Older(v, rows[page.AdminRows-1].Number)
	}
	for _, d := range rows {
		out = append(out, DocumentRow{
			Number:   d.Number,
			Kind:     SeriesName(string(d.Series)),
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

// documentPage shows one of the organisation's documents, laid out for printing.
func (s *Pages) documentPage(v *page.Visit) error {
	d, corrected, err := s.Statements.OrgDocument(v.R.Context(), v.Who.Org, chi.URLParam(v.R, "number"))
	if err != nil {
		return err
	}
	return ShowDocument(v, d, corrected, "/documents")
}

func ShowDocument(v *page.Visit, d statement.Document, corrected []string, list string) error {
	ctx := v.R.Context()
	out := Paper{
		Number:      d.Number,
		Kind:        SeriesName(string(d.Series)),
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
		out.Receipt, err = v.Site.Payments.Receipts.Get(ctx, d.Org, *d.TopUp)
	case d.Series == document.CreditNote:
		out.CreditNote, err = v.Site.Payments.Receipts.CreditNote(ctx, d.Org, d.Number)
		if out.Corrects == "" {
			out.Corrects = out.CreditNote.Corrects
		}
	default:
		out.SelfBill, err = v.Site.Payouts.SelfBill(ctx, d.Org, d.Number)
	}
	if err != nil {
		return err
	}
	p := v.Page(out.Kind+" "+d.Number, "")
	return v.Site.Render(v, PaperPage(p, out))
}
