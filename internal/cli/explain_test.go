package cli

import (
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/musterhq/muster/client"
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

func TestASpecThatEndsTooEarlySaysSo(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`{"nodes": 2,`:           "the spec on standard input ends before its JSON does",
		``:                       "the spec on standard input ends before its JSON does",
		`{"nodes": 2, "foo": 1}`: `unknown field "foo"`,
	} {
		cmd := &cobra.Command{}
		cmd.SetIn(strings.NewReader(text))
		f := specFlags{file: "-"}
		if err := f.read(cmd, new(client.Spec)); !fault.Is(err, fault.Invalid) || !strings.Contains(fault.From(err).Message,
			want) {
			t.Errorf("%s: %v", text, err)
		}
	}
}
