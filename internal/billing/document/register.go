package document

import (
	"context"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
)

// Entry is a document in the register, with its organisation and its date.
type Entry struct {
	Issued
	OrgName string
	Zone    string // IANA name: the time zone of the organisation when the document was issued
}

// Date returns the day on which the document was issued, YYYY-MM-DD in its time zone.
func (e Entry) Date() string {
	zone, err := time.LoadLocation(e.Zone)
	if err != nil {
		zone = time.UTC
	}
	return e.IssuedAt.In(zone).Format(time.DateOnly)
}

// Filter selects documents of the register. Zero fields select all.
type Filter struct {
	Org    id.Org
	Series Series
	Year   int    // of the number
	Before string // number of the last document of the page before; "": from the newest
}

// Register returns documents, newest first, at most limit. Faults: Invalid for a series or a cursor that does not
// exist.
func Register(ctx context.Context, q *dbq.Queries, f Filter, limit int) ([]Entry, error) {
	if f.Series != "" && letters[f.Series] == "" {
		return nil, fault.InvalidField("series", "must be receipt, credit_note or self_billing")
	}
	in := dbq.DocumentsIssuedParams{
		Series:   string(f.Series),
		Year:     int32(min(max(f.Year, 0), math.MaxInt16)),
		MaxRows:  int32(limit),
		BeforeAt: time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC),
	}
	if !f.Org.IsZero() {
		in.OrgID = pgtype.UUID{Bytes: f.Org.UUID(), Valid: true}
	}
	if f.Before != "" {
		last, err := Numbered(ctx, q, f.Org, f.Before)
		if err != nil {
			return nil, fault.InvalidField("after", "is not a cursor of this list")
		}
		in.BeforeAt, in.BeforeKey = last.IssuedAt, last.Key
	}
	rows, err := q.DocumentsIssued(ctx, in)
	if err != nil {
		return nil, fmt.Errorf("read documents: %w", err)
	}
	out := make([]Entry, len(rows))
	for i, r := range rows {
		out[i] = entry(dbq.DocumentNumberedRow(r))
	}
	return out, nil
}

// Numbered returns the document with a number: an organisation's own, or for the zero org anyone's. Fault: NotFound.
func Numbered(ctx context.Context, q *dbq.Queries, org id.Org, number string) (Entry, error) {
	none := fault.New(fault.NotFound, "document not found")
	s, year, n, ok := parse(number)
	if !ok {
		return Entry{}, none
	}
	r, err := q.DocumentNumbered(ctx, string(s), year, n)
	if err != nil && !db.NoRows(err) {
		return Entry{}, fmt.Errorf("read document %s: %w", number, err)
	}
	if err != nil || (!org.IsZero() && r.OrgID != org) {
		return Entry{}, none
	}
	return entry(r), nil
}

// Corrections returns the numbers of the documents that correct or cancel one, in the order of issue.
func Corrections(ctx context.Context, q *dbq.Queries, of Issued) ([]string, error) {
	rows, err := q.DocumentCorrections(ctx, of.Org, of.Key)
	if err != nil {
		return nil, fmt.Errorf("read corrections of %s: %w", of.Number, err)
	}
	out := make([]string, len(rows))
	for i, r := range rows {
		out[i] = Number(Series(r.Series), r.Year, r.Number)
	}
	return out, nil
}

// parse reads a number such as R-2026-000001. ok is false for a text that Number does not write.
func parse(number string) (s Series, year int32, n int64, ok bool) {
	parts := strings.Split(number, "-")
	if len(parts) != 3 {
		return "", 0, 0, false
	}
	for series, letter := range letters {
		if parts[0] == letter {
			s = series
		}
	}
	y, err := strconv.ParseInt(parts[1], 10, 32)
	if s == "" || err != nil {
		return "", 0, 0, false
	}
	n, err = strconv.ParseInt(parts[2], 10, 64)
	if err != nil || n < 1 || Number(s, int32(y), n) != number {
		return "", 0, 0, false
	}
	return s, int32(y), n, true
}

func entry(r dbq.DocumentNumberedRow) Entry {
	return Entry{
		Issued: Issued{
			Number:   Number(Series(r.Series), r.Year, r.Number),
			Series:   Series(r.Series),
			Org:      r.OrgID,
			Key:      r.Key,
			Corrects: Number(Series(r.CorrectsSeries), r.CorrectsYear, r.CorrectsNumber),
			IssuedAt: r.IssuedAt.UTC(),
			Content:  r.Content,
		},
		OrgName: r.OrgName,
		Zone:    r.Zone,
	}
}
