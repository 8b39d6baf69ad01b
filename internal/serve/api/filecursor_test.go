package api

import (
	"testing"

	"github.com/musterhq/muster/internal/fault"
)

// A cursor of files names a snapshot and any name that a file can have; anything else is refused.
func TestFileCursor_ComesBack(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"a", "model.pt", "\xff\n", "ü.1"} {
		seq, got, err := parseFileCursor(fileCursor(12, name))
		if err != nil || seq != 12 || got != name {
			t.Errorf("%q comes back as %d %q: %v", name, seq, got, err)
		}
	}
	for _, s := range []string{"a", "0.YQ", "-1.YQ", "12", "12.*", "x.YQ"} {
		if _, _, err := parseFileCursor(s); !fault.Is(err, fault.Invalid) {
			t.Errorf("%q: %v", s, err)
		}
	}
}
