package host

import (
	"testing"

	"github.com/musterhq/muster/client"
)

func TestTheDataOfAMonthIsShownOfItsCap(t *testing.T) {
	t.Parallel()
	gb := int64(200)
	for bytes, want := range map[int64]string{
		0:               "0.0 of 200 GB  [....................] 0 %",
		50_000_000_000:  "50.0 of 200 GB  [#####...............] 25 %",
		199_999_999_999: "200.0 of 200 GB  [###################.] 99 %",
		500_000_000_000: "500.0 of 200 GB  [####################] 250 %",
	} {
		if got := dataUsed(bytes, &gb); got != want {
			t.Errorf("%d: %q, want %q", bytes, got, want)
		}
	}
	n := int64(3_140_000_000)
	if m := (client.DataMonth{DownBytes: 2, PulledBytes: &n}); pulled(&m) != "3.1 GB" || m.Received() != n+2 {
		t.Errorf("%q of %d", pulled(&m), m.Received())
	}
	if m := (client.DataMonth{
		UpBytes:     1,
		OverlayUp:   2,
		DownBytes:   4,
		OverlayDown: 8,
		PulledBytes: &n,
	}); m.Sent() != 3 || m.Received() != n+12 {
		t.Errorf("sent %d, received %d", m.Sent(), m.Received())
	}
	if m := (client.DataMonth{DownBytes: 2}); pulled(&m) != "" || m.Received() != 2 {
		t.Errorf("an agent that does not count: %q of %d", pulled(&m), m.Received())
	}
	if got := dataUsed(7_000_000_000, nil); got != "7.0 GB, no cap" {
		t.Error(got)
	}
}
