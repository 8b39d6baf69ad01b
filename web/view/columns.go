package view

import (
	"fmt"
	"math"
	"time"

	"github.com/musterhq/muster/internal/money"
)

// DayAmount is one day's money.
type DayAmount struct {
	Day    time.Time // midnight UTC
	Amount money.Nano
}

// Columns is a chart of money by day: one column for each day, without gaps, and lines at round amounts.
type Columns struct {
	Title, Label string
	Columns      []Column
	Lines        []GridLine
	Total        money.Nano
	Nothing      bool // all days are zero: drawn without a scale
}

// Column is one day, in the chart's units.
type Column struct {
	X, Y, Width, Height string
	Day                 string // "1 Nov" below the column; "" = no label
	DayX                string
	Tip                 string // tooltip, also for screen readers
}

// GridLine is a round amount across the chart.
type GridLine struct{ Y, TextY, Label string }

// The chart's dimensions, in its own units; it scales to its container.
const (
	columnsWidth, columnsHeight = 940, 184
	columnsLeft, columnsBase    = 42.0, 160.0
	columnsTop                  = 15.0
	lastDays                    = 30
)

// NewColumns returns a chart of the thirty days that end today. Missing days are zero; amounts must not be negative.
func NewColumns(title, currency string, today time.Time, days []DayAmount) Columns {
	byDay := map[string]money.Nano{}
	for _, d := range days {
		byDay[d.Day.Format(time.DateOnly)] += d.Amount
	}
	first := today.AddDate(0, 0, 1-lastDays)
	var most money.Nano
	for i := range lastDays {
		most = max(most, byDay[first.AddDate(0, 0, i).Format(time.DateOnly)])
	}
	step := roundStep(float64(most) / float64(money.Unit) / 3)
	top := step * 3
	y := func(units float64) float64 { return columnsBase - (columnsBase-columnsTop)*units/top }
	c := Columns{Title: title, Nothing: most == 0}
	for i := range 4 {
		if i > 0 && c.Nothing {
			break
		}
		at := y(step * float64(i))
		c.Lines = append(c.Lines, GridLine{Coord(at), Coord(at + 4), amountLabel(step*float64(i), step)})
	}
	pitch := (columnsWidth - columnsLeft - 3) / lastDays
	for i := range lastDays {
		day := first.AddDate(0, 0, i)
		amount := byDay[day.Format(time.DateOnly)]
		c.Total += amount
		x, height := columnsLeft+3+pitch*float64(i), columnsBase-y(float64(amount)/float64(money.Unit))
		col := Column{
			X:      Coord(x),
			Y:      Coord(columnsBase - height),
			Width:  Coord(pitch - 4),
			Height: Coord(height),
			DayX:   Coord(x + (pitch-4)/2),
			Tip:    fmt.Sprintf("%s: %s %s", day.Format("2 Jan"), shortMoney(amount), currency),
		}
		if (lastDays-1-i)%7 == 3 {
			col.Day = day.Format("2 Jan")
		}
		c.Columns = append(c.Columns, col)
	}
	c.Label = fmt.Sprintf("%s, %s to %s, %s", title, first.Format("2 Jan"), today.Format("2 Jan"), currency)
	return c
}

// Sum is the chart's total in words: "29.00 USD".
func (c Columns) Sum(currency string) string { return shortMoney(c.Total) + " " + currency }

// shortMoney formats an amount in cents, and one below a cent with four decimals: it is not nothing.
func shortMoney(n money.Nano) string {
	if n > 0 && n < money.Unit/100 {
		cents, rest := split(n, 4)
		return cents + rest
	}
	return Cents(n)
}

// roundStep returns the least of 1, 2, 5 times a power of ten that is at least f and at least 0.0001, the last decimal
// of amounts on pages.
func roundStep(f float64) float64 {
	f = max(f, 0.0001)
	power := math.Pow(10, math.Floor(math.Log10(f)))
	for _, m := range []float64{1, 2, 5} {
		if m*power >= f*(1-1e-9) {
			return m * power
		}
	}
	return 10 * power
}

// amountLabel formats a multiple of step, with the decimals that step needs: all labels of a chart have as many.
func amountLabel(units, step float64) string {
	switch {
	case units == 0:
		return "0"
	case step >= 1:
		return fmt.Sprintf("%.0f", units)
	case step >= 0.01:
		return fmt.Sprintf("%.2f", units)
	}
	return fmt.Sprintf("%.4f", units)
}
