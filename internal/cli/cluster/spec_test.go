package cluster

import (
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/cli/base"
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

func TestSpec_EnvironmentOfFlagsAndFile(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "x.env")
	if err := os.WriteFile(file, []byte("A=file\nB=file\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := &cobra.Command{}
	cmd.SetContext(base.WithEnviron(t.Context(), []string{"HERE=yes", "EMPTY="}))
	f := specFlags{envFile: file, env: []string{"B=flag", "HERE", "EMPTY", "EQUALS=a=b,c"}}
	s, err := f.spec(cmd, nil)
	want := map[string]string{"A": "file", "B": "flag", "HERE": "yes", "EMPTY": "", "EQUALS": "a=b,c"}
	if err != nil || !maps.Equal(s.Env, want) {
		t.Errorf("%v %v", s.Env, err)
	}
	f = specFlags{env: []string{"WANDB_API_KEY"}}
	if _, err := f.spec(cmd, nil); !fault.Is(err, fault.Invalid) ||
		!strings.Contains(err.Error(), "--env: WANDB_API_KEY is not set in your environment") {
		t.Errorf("an unset variable: %v", err)
	}
}
