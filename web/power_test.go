package web_test

import (
	"strings"
	"testing"
	"time"
)

// The market says where GPUs may draw less than they were made for, and can be asked for those that may draw more.
func TestTheMarketSaysWhereGPUsAreHeldToLessPower(t *testing.T) {
	t.Parallel()
	b := open(t)
	b.signUp()
	b.sell(2)
	set := func(limit int) {
		t.Helper()
		if _, err := b.db.Pool.Exec(t.Context(), "UPDATE gpu SET power_limit_w = CASE idx WHEN 0 THEN $1 ELSE 700 END, "+
			"power_default_w = 700", limit); err != nil {
			t.Fatal(err)
		}
	}
	const rows = "td.c-add"
	for _, c := range []struct {
		limit  int
		query  string
		offers int
		says   bool
	}{
		{250, "", 1, true}, {700, "power_limit_w%3E%3D300", 1, false}, {250, "power_limit_w%3E%3D300", 0, false},
	} {
		set(c.limit)
		for deadline := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
			_, doc := b.get("/offers?q=" + c.query)
			text := doc.Find("main").Text()
			offers, says := doc.Find(rows).Length(), strings.Contains(text, "limited to 250 of 700 W")
			if offers == c.offers && says == c.says {
				break
			}
			if time.Now().After(deadline) {
				t.Fatalf("%+v: %d offers: %s", c, offers, text)
			}
		}
	}
	_, doc := b.get("/offers/filter?power=300")
	if got := doc.Find("#q").AttrOr("value", ""); got != "power_limit_w >= 300" {
		t.Errorf("the filter asks %q", got)
	}
}
