package volume

import (
	"strings"
	"testing"
	"time"

	"github.com/musterhq/muster/internal/data/transfer"
)

func TestParsePlace(t *testing.T) {
	t.Parallel()
	for arg, want := range map[string][2]string{
		"./data": {"", "./data"}, "data": {"", "data"}, "a/b:c": {"", "a/b:c"}, `C:\data`: {"", `C:\data`}, "./a:b": {"", "./a:b"},
		"vol:": {"vol", "/"}, "vol:x": {"vol", "/x"}, "vol:/x//y/": {"vol", "/x/y"}, "vol:/./x": {"vol", "/x"},
	} {
		if v, at, err := parsePlace(arg); err != nil || [2]string{v, at} != want {
			t.Errorf("%q: %q %q %v", arg, v, at, err)
		}
	}
	if _, _, err := parsePlace("vol:/a/../../b"); err == nil {
		t.Error("a path that leads up is accepted")
	}
}

func TestLineOfProgress(t *testing.T) {
	t.Parallel()
	got := lineOf(transfer.Progress{Done: 5e9, Total: 20e9, Moved: 1e9}, "sent", 10*time.Second)
	if got != "5.0 GB of 20.0 GB, 500.0 MB/s, 30s left, 1.0 GB sent" {
		t.Error(got)
	}
	if got := lineOf(transfer.Progress{Total: 5}, "sent", 10*time.Second); strings.Contains(got, "left") {
		t.Error(got)
	}
}
