package web_test

import (
	"strings"
	"testing"
)

// The operator sees which programs keep a GPU from being rented.
func TestTheHostsPageSaysWhoUsesAGPU(t *testing.T) {
	t.Parallel()
	b := open(t)
	b.signUp()
	b.sell(2)
	if _, err := b.db.Pool.Exec(t.Context(), "UPDATE gpu SET in_use = 'Xorg, 412 MiB' WHERE idx = 0"); err != nil {
		t.Fatal(err)
	}
	_, doc := b.get("/hosts")
	host, _ := doc.Find(`main a[href^="/hosts/host_"]`).Attr("href")
	_, doc = b.get(host)
	if text := doc.Find("main").Text(); !strings.Contains(text, "in use by you (Xorg, 412 MiB)") ||
		!strings.Contains(text, "0 leased, 1 free of 2") {
		t.Error(text)
	}
}
