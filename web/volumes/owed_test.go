package volumes

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/musterhq/muster/internal/data/volume"
	"github.com/musterhq/muster/internal/money"
	"github.com/musterhq/muster/web/view"
)

// The list and the page of a volume that is not paid for show what is owed, and when it is hidden and erased.
func TestOwed_IsShown(t *testing.T) {
	t.Parallel()
	hides, erases := time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC), time.Date(2026, 12, 8, 0, 0, 0, 0, time.UTC)
	x := volume.Volume{Name: "data", Owed: 12*money.Unit + 1, OwedSince: &hides, HidesAt: &hides, ErasesAt: &erases}
	shown := func(want string) {
		t.Helper()
		var list, detail bytes.Buffer
		r := rowOf(x)
		if err := ListPage(view.Page{}, List{Offered: true, Rows: []Row{r}}).Render(t.Context(), &list); err != nil {
			t.Fatal(err)
		}
		if err := DetailPage(view.Page{}, Detail{Row: r}).Render(t.Context(), &detail); err != nil {
			t.Fatal(err)
		}
		for what, page := range map[string]string{"list": list.String(), "page": detail.String()} {
			if !strings.Contains(page, want) {
				t.Errorf("the %s does not show %q", what, want)
			}
		}
	}
	shown("12.01 are owed for what it stored. If that is not paid, it is hidden on 1 December 2026 and erased on " +
		"8 December 2026.")
	x.HiddenAt = &hides
	shown("It is hidden until that is paid, and erased on 8 December 2026.")
}
