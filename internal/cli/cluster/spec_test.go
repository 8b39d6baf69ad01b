package cluster

import (
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/fault"
)

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
