package web_test

import (
	"strings"
	"testing"
	"time"
)

// The market and the host's page say which GPUs are slower than they could be, why, and since when.
func TestDegradedGPUsAreShown(t *testing.T) {
	t.Parallel()
	b := open(t)
	b.signUp()
	b.sell(2)
	if _, err := b.db.Pool.Exec(t.Context(), "UPDATE gpu SET degraded = 'HW thermal slowdown', "+
		"degraded_since = '2026-11-24T02:10:00Z' WHERE idx = 1"); err != nil {
		t.Fatal(err)
	}
	const want = "HW thermal slowdown since 2026-11-24 02:10 UTC"
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
		_, doc := b.get("/offers")
		if text := doc.Find("main").Text(); strings.Contains(text, "degraded: 1 of 2 GPUs: "+want) {
			break
		} else if time.Now().After(deadline) {
			t.Fatal(text)
		}
	}
	_, list := b.get("/hosts")
	link, _ := list.Find(`main a[href^="/hosts/host_"]`).Attr("href")
	_, page := b.get(link)
	if text := page.Find("main").Text(); !strings.Contains(text, "Degraded") || !strings.Contains(text, want) {
		t.Error(text)
	}
}
