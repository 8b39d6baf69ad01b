package cli

import (
	"testing"

	"github.com/musterhq/muster/internal/fault"
)

func TestWhatIsNotFoundIsListedSomewhere(t *testing.T) {
	t.Parallel()
	for message, want := range map[string]string{
		"no cluster is called train": "see what there is: muster cluster list",
		"There is no such host.":     "see what there is: muster host list",
		"no such SSH key":            "see what there is: muster ssh-key list",
		"no such token":              "see what there is: muster token list",
		"no such page":               "",
	} {
		if got := hint(fault.New(fault.NotFound, "%s", message)); got != want {
			t.Errorf("%s: %q, want %q", message, got, want)
		}
	}
}
