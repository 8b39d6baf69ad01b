package view

import (
	"strconv"
	"testing"
	"time"

	"github.com/musterhq/muster/internal/money"
)

func TestColumnsAreTheDaysMoney(t *testing.T) {
	t.Parallel()
	today := time.Date(2026, 3, 2, 0, 0, 0, 0, time.UTC)
	c := NewColumns("Earned by day", "USD", today, []DayAmount{
		{today, 7 * money.Unit}, {today.AddDate(0, 0, -2), 21 * money.Unit}, {today.AddDate(0, 0, -29), money.Unit},
		{today.AddDate(0, 0, -30), 900 * money.Unit},
	})
	if len(c.Columns) != 30 || c.Total != 29*money.Unit {
		t.Fatalf("%d columns of %s", len(c.Columns), c.Total)
	}
	height := func(i int) float64 {
		f, err := strconv.ParseFloat(c.Columns[i].Height, 64)
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	if r := height(27) / height(29); r < 2.99 || r > 3.01 {
		t.Errorf("21 is drawn %.3f times as high as 7", r)
	}
	if height(28) != 0 || c.Columns[0].Tip != "1 Feb: 1.00 USD" || c.Columns[29].Tip != "2 Mar: 7.00 USD" {
		t.Errorf("%+v %+v", c.Columns[0], c.Columns[29])
	}
	if c.Lines[3].Label != "30" || c.Lines[0].Label != "0" {
		t.Errorf("%+v", c.Lines)
	}
	if empty := NewColumns("Earned by day", "USD", today, nil); len(empty.Lines) != 1 || !empty.Nothing ||
		empty.Total != 0 || c.Nothing {
		t.Errorf("nothing earned: %+v", empty.Lines)
	}
}

func TestColumns_SmallAmountsAreDrawnAndNamed(t *testing.T) {
	t.Parallel()
	today := time.Date(2026, 3, 2, 0, 0, 0, 0, time.UTC)
	c := NewColumns("Cost by day", "USD", today, []DayAmount{{today, 170_000}})
	h, err := strconv.ParseFloat(c.Columns[29].Height, 64)
	if err != nil || h < 60 {
		t.Errorf("0.00017 is drawn %s high: %v", c.Columns[29].Height, err)
	}
	if c.Lines[1].Label != "0.0001" || c.Lines[3].Label != "0.0003" ||
		c.Columns[29].Tip != "2 Mar: 0.0002 USD" || c.Sum("USD") != "0.0002 USD" {
		t.Errorf("%+v %+v %s", c.Lines, c.Columns[29], c.Sum("USD"))
	}
}
