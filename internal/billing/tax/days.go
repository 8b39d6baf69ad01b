package tax

import (
	"context"
	"fmt"
	"time"

	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/money"
)

// checkDayAfter is how long the total of a closed day is trusted before it is compared with the tax book again.
const checkDayAfter = 24 * time.Hour

// CloseDays freezes what was taxed, less what was paid to tax offices, on days that have been over for a day, so that a
// report adds up open days only. It returns how many days were closed. Run it hourly, by any replica.
func CloseDays(ctx context.Context, d *db.DB) (closed int, err error) {
	for ctx.Err() == nil {
		n, err := d.Q.CloseTaxDays(ctx)
		if err != nil {
			return closed, fmt.Errorf("close days of the tax book: %w", err)
		}
		if n == 0 {
			return closed, nil
		}
		closed += int(n)
	}
	return closed, ctx.Err()
}

// CheckDay compares the closed day that was checked longest ago with the tax book, if that was over a day ago. What
// does not agree is recorded, and returned as an error.
func CheckDay(ctx context.Context, d *db.DB) (checked int, err error) {
	r, err := d.Q.TaxDayToCheck(ctx)
	if db.NoRows(err) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("read the next day to check: %w", err)
	}
	now, err := d.Q.DatabaseTime(ctx)
	if err != nil || now.Sub(r.CheckedAt) < checkDayAfter {
		return 0, err
	}
	x, err := d.Q.TaxDaySums(ctx, dbq.TaxDaySumsParams{
		Currency: r.Currency,
		FromTime: r.Day.Time,
		ToTime:   r.Day.Time.AddDate(0, 0, 1),
		Day:      r.Day,
	})
	if err != nil {
		return 0, fmt.Errorf("add up %s: %w", r.Day.Time.Format(time.DateOnly), err)
	}
	problem := ""
	if x.Change != r.Change || x.Before+x.Change != r.After {
		problem = fmt.Sprintf("the day adds up to %s, and %s were recorded", money.Nano(x.Change), money.Nano(r.Change))
	}
	if err := d.Q.TaxDayChecked(ctx, problem, r.Currency, r.Day); err != nil {
		return 0, fmt.Errorf("record the check of %s: %w", r.Day.Time.Format(time.DateOnly), err)
	}
	if problem != "" {
		return 1, fmt.Errorf("tax book of %s in %s: %s", r.Day.Time.Format(time.DateOnly), r.Currency, problem)
	}
	return 1, nil
}
