// Package document keeps the register of documents that have a number of a series: receipts, credit notes and
// operators' self-billing documents.
//
// What always holds:
//   - The numbers of a series and year are 1, 2, 3, … without a gap or a duplicate, in the order of issue.
//   - PostgreSQL sets a document's number when the issuing transaction commits, after all its other locks
//     (migration 00160). A transaction that rolls back takes none, and a client that stops in the middle of its
//     transaction delays no other.
//   - A document never changes. A mistake is corrected by another document, which names the one it corrects.
package document

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
)

// Series is a kind of document with numbers of its own. The words are in the database: never change them.
type Series = client.DocumentSeries

const (
	Receipt     = client.SeriesReceipt     // R-2026-000001
	CreditNote  = client.SeriesCreditNote  // C-2026-000001
	SelfBilling = client.SeriesSelfBilling // S-2026-000001
)

var letters = map[Series]string{Receipt: "R", CreditNote: "C", SelfBilling: "S"}

// Draft is a document to be issued.
type Draft struct {
	Series   Series
	Org      id.Org // whom it is for
	Key      string // what it documents; once forever
	Corrects string // key of the document that it corrects or cancels; "": none of the register
	Content  any    // as JSON
}

// Issue writes a document that gets its number when tx commits. A document with the same key stands.
func Issue(ctx context.Context, tx *db.Tx, d Draft) error {
	content, err := json.Marshal(d.Content)
	if err != nil {
		return fmt.Errorf("document %s: %w", d.Key, err)
	}
	if _, err := tx.Q.InsertDocument(ctx, dbq.InsertDocumentParams{
		Key:      d.Key,
		Series:   string(d.Series),
		OrgID:    d.Org,
		Corrects: d.Corrects,
		Content:  content,
	}); err != nil {
		return fmt.Errorf("insert document %s: %w", d.Key, err)
	}
	return nil
}

// Issued is a document of the register.
type Issued struct {
	Number   string // such as C-2026-000001; "" before the commit
	Series   Series
	Org      id.Org
	Key      string
	Corrects string // number of the document that it corrects; "": none of the register
	IssuedAt time.Time
	Content  []byte // JSON
}

// Find returns the document with a key. found is false when there is none.
func Find(ctx context.Context, q *dbq.Queries, key string) (d Issued, found bool, err error) {
	r, err := q.DocumentByKey(ctx, key)
	if db.NoRows(err) {
		return Issued{}, false, nil
	}
	if err != nil {
		return Issued{}, false, fmt.Errorf("read document %s: %w", key, err)
	}
	return Issued{
		Number:   Number(Series(r.Series), r.Year, r.Number),
		Series:   Series(r.Series),
		Org:      r.OrgID,
		Key:      r.Key,
		IssuedAt: r.IssuedAt.UTC(),
		Content:  r.Content,
	}, true, nil
}

// Get returns a document of an org. Fault: NotFound.
func Get(ctx context.Context, q *dbq.Queries, org id.Org, s Series, number string) (Issued, error) {
	none := fault.New(fault.NotFound, "document not found")
	parts := strings.Split(number, "-")
	if len(parts) != 3 || parts[0] != letters[s] {
		return Issued{}, none
	}
	year, err := strconv.ParseInt(parts[1], 10, 32)
	if err != nil {
		return Issued{}, none
	}
	n, err := strconv.ParseInt(parts[2], 10, 64)
	if err != nil || Number(s, int32(year), n) != number {
		return Issued{}, none
	}
	r, err := q.DocumentByNumber(ctx, dbq.DocumentByNumberParams{
		Series: string(s),
		Year:   int32(year),
		Number: n,
		OrgID:  org,
	})
	if db.NoRows(err) {
		return Issued{}, none
	}
	if err != nil {
		return Issued{}, fmt.Errorf("read document %s: %w", number, err)
	}
	return issued(dbq.DocumentsOfOrgRow(r)), nil
}

func issued(r dbq.DocumentsOfOrgRow) Issued {
	return Issued{
		Number:   Number(Series(r.Series), r.Year, r.Number),
		Series:   Series(r.Series),
		Org:      r.OrgID,
		Key:      r.Key,
		Corrects: Number(Series(r.CorrectsSeries), r.CorrectsYear, r.CorrectsNumber),
		IssuedAt: r.IssuedAt.UTC(),
		Content:  r.Content,
	}
}

// Number returns a number as people read it, such as R-2026-000001; "" for n = 0.
func Number(s Series, year int32, n int64) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprintf("%s-%04d-%06d", letters[s], year, n)
}

// maxListed bounds a list of documents of a year.
const maxListed = 5000

// Year lists an org's documents of a series and a calendar year of issue (UTC), such as "2026", newest first, at most
// 5,000, each as decode reads it. Fault: Invalid (the year).
func Year[T any](ctx context.Context, q *dbq.Queries, org id.Org, s Series, year string,
	decode func(Issued) (T, error)) ([]T, error) {
	n, err := strconv.Atoi(year)
	if err != nil || n < 2000 || n > 9999 {
		return nil, fault.InvalidField("year", "must be a calendar year, such as 2026")
	}
	rows, err := q.DocumentsOfOrg(ctx, dbq.DocumentsOfOrgParams{
		OrgID:   org,
		Series:  string(s),
		Year:    int32(n),
		Before:  1 << 62,
		MaxRows: maxListed,
	})
	if err != nil {
		return nil, fmt.Errorf("list documents of %s: %w", org, err)
	}
	out := make([]T, len(rows))
	for i, r := range rows {
		if out[i], err = decode(issued(r)); err != nil {
			return nil, err
		}
	}
	return out, nil
}
