package document

import (
	"context"
	"fmt"
	"time"

	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/db/dbq"
)

// Check is what one series of a year was found to be.
type Check struct {
	Series  Series `json:"series"`
	Year    int    `json:"year"`
	Issued  int64  `json:"issued"`  // documents
	Last    string `json:"last"`    // the highest number
	Problem string `json:"problem"` // "": no gap, no duplicate, in order of issue
}

// CheckAll adds up every series: whether its numbers have no gap and follow the order of issue. Documents that Advance
// came past are not read again: they never change, and Recheck reads them now and then.
func CheckAll(ctx context.Context, q *dbq.Queries) ([]Check, error) {
	rows, err := q.DocumentSeries(ctx)
	if err != nil {
		return nil, fmt.Errorf("check the series of documents: %w", err)
	}
	out := make([]Check, len(rows))
	for i, r := range rows {
		c := Check{
			Series:  Series(r.Series),
			Year:    int(r.Year),
			Issued:  r.Documents,
			Last:    Number(Series(r.Series), r.Year, r.Last),
			Problem: problemOf(span{r.Documents, r.First, r.Last, r.Disorder}, r.Given),
		}
		if c.Problem == "" {
			c.Problem = r.Problem
		}
		out[i] = c
	}
	return out, nil
}

// span is what the documents of a series are, in the order of their numbers.
type span struct {
	documents, first, last int64
	disorder               int64 // documents dated before the one with the number before theirs
}

// problemOf returns what is wrong with a series of which so many numbers were given; "" if nothing is.
func problemOf(s span, given int64) string {
	switch {
	case s.documents != given || s.first != 1 || s.last != given:
		return fmt.Sprintf("%d numbers were given, and %d documents have numbers from %d to %d", given, s.documents,
			s.first, s.last)
	case s.disorder != 0:
		return fmt.Sprintf("%d documents are dated before the one with the number before theirs", s.disorder)
	}
	return ""
}

const (
	// advanceRows bounds how many documents of each series Advance reads at once.
	advanceRows = 20_000
	// recheckAfter is how long a series is trusted before all of it is read again.
	recheckAfter = 24 * time.Hour
)

// Advance records how far each series has no gap and is in order of issue, so that CheckAll need not read it again. It
// returns how many series it advanced. Run it hourly, by any replica.
func Advance(ctx context.Context, d *db.DB) (advanced int, err error) {
	for ctx.Err() == nil {
		n, err := d.Q.AdvanceDocumentCheck(ctx, advanceRows)
		if err != nil {
			return advanced, fmt.Errorf("advance the check of documents: %w", err)
		}
		if n == 0 {
			return advanced, nil
		}
		advanced += int(n)
	}
	return advanced, ctx.Err()
}

// Recheck reads all that Advance came past of the series that was read longest ago, if that was over a day ago. What is
// wrong is recorded, reported by CheckAll until the series agrees again, and returned as an error.
func Recheck(ctx context.Context, d *db.DB) (checked int, err error) {
	r, err := d.Q.DocumentsToCheck(ctx)
	if db.NoRows(err) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("read the next series to check: %w", err)
	}
	now, err := d.Q.DatabaseTime(ctx)
	if err != nil || now.Sub(r.CheckedAt) < recheckAfter {
		return 0, err
	}
	problem := ""
	if err := d.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		if _, err := tx.Exec(ctx, "SET LOCAL statement_timeout = '10min'"); err != nil {
			return err
		}
		x, err := tx.Q.DocumentsThrough(ctx, r.Series, r.Year, r.Through)
		if err != nil {
			return err
		}
		problem = problemOf(span{x.Documents, x.First, x.Last, x.Disorder}, r.Through)
		return tx.Q.DocumentsChecked(ctx, problem, r.Series, r.Year)
	}); err != nil {
		return 0, fmt.Errorf("check the documents %s of %d: %w", r.Series, r.Year, err)
	}
	if problem != "" {
		return 1, fmt.Errorf("documents %s of %d: %s", r.Series, r.Year, problem)
	}
	return 1, nil
}
