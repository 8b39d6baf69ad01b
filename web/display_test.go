package web_test

import (
	"strings"
	"testing"
)

// The market says which offers have a GPU that drives a display, and can be asked for those that have none.
func TestTheMarketSaysWhereAGPUDrivesADisplay(t *testing.T) {
	t.Parallel()
	b := open(t)
	b.signUp()
	b.sell(2)
	const without = "/offers?q=display%3Dfalse"
	found := func(path string) int {
		_, doc := b.get(path)
		return doc.Find("td.c-add").Length()
	}
	b.until("an offer without a display", func() bool { return found(without) == 1 })
	b.exec("UPDATE gpu SET display = true WHERE idx = 1")
	b.until("none without a display", func() bool { return found(without) == 0 && found("/offers?q=display%3Dtrue") == 1 })
	_, doc := b.get("/offers")
	if text := doc.Find("main").Text(); !strings.Contains(text, "drives a display: long kernels are ended") {
		t.Errorf("the market says %s", text)
	}
	_, doc = b.get(doc.Find(".c-model a").AttrOr("href", ""))
	if text := doc.Find(".offerfacts").Text(); !strings.Contains(text, "Drives a displayyes") {
		t.Errorf("the facts are %s", text)
	}
}
