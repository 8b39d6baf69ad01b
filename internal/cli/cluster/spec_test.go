package cluster

import (
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/fault"
)

func TestSpecFromStandardInput(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`{"nodes": 2,`:           "standard input: line 1",
		``:                       "standard input is empty",
		`{"nodes": 2, "foo": 1}`: `no field "foo"`,
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
