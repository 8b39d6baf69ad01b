package cluster

import (
	"encoding/json"
	"os/exec"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/kballard/go-shellquote"
	"github.com/spf13/cobra"

	"github.com/musterhq/muster/internal/cli/base"
	"github.com/musterhq/muster/internal/fleet/market"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/web/page"
)

const fullSpec = `{"name":"train 1","project":"vision","labels":{"a":"b"},"nodes":2,"gpus_per_node":4,
	"gpu":"gpu_model=H100 vram_gb>=80","image":"pytorch/pytorch:2.4.0","restart":"on_failure","egress":"limited",
	"user":"app:users",
	"entrypoint":["bash","-c"],"command":["echo 'it''s' \"$RANK\"\nexit"],"env":{"LINES_TEST":"from the shell"},
	"ports":[{"port":8888,"protocol":"http"},{"port":6006,"protocol":"tcp"}],"disk_gb":100,"disk_limited":true,
	"scratch_gb":5,"runtime":"runsc","trust":"any","ssh_key_ids":["key_01jd9w6n3q0000000000000001"],
	"max_price_per_hour":"12.00","max_duration":7200,"budget":"50.00","network":{"scope":"fabric","min_gbps":10},
	"on_node_failure":"replace"}`

// The command and the request that pages show for a spec result in that spec.
func TestLines_AreTheSpec(t *testing.T) {
	t.Setenv("LINES_TEST", "from the shell")
	for _, text := range []string{fullSpec, `{"image":"busybox"}`} {
		want, err := market.ParseQuoteSpec([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		for name, raw := range map[string][]byte{
			"muster": commandJSON(t, page.CreateLine(want)),
			"curl":   curlJSON(t, (&page.Site{Config: page.Config{PublicURL: "http://127.0.0.1"}}).CurlLine(want)),
		} {
			got, err := market.ParseQuoteSpec(raw)
			if err != nil {
				t.Fatalf("%s: %v in %s", name, err, raw)
			}
			if want.Runtime == "" {
				got.Runtime = ""
			}
			if d := cmp.Diff(want, got, cmpopts.EquateComparable(id.SSHKey{})); d != "" {
				t.Errorf("%s: -want +got:\n%s", name, d)
			}
		}
	}
}

// commandJSON returns the spec that a muster cluster create line sends.
func commandJSON(t *testing.T, line string) []byte {
	t.Helper()
	words, err := shellquote.Split(line)
	if err != nil || strings.Join(words[:3], " ") != "muster cluster create" {
		t.Fatalf("%v: %s", err, line)
	}
	var raw []byte
	var f specFlags
	cmd := &cobra.Command{Use: "create", RunE: func(cmd *cobra.Command, args []string) error {
		s, err := f.spec(cmd, args)
		if err == nil {
			raw, err = json.Marshal(s)
		}
		return err
	}}
	f.register(cmd)
	cmd.SetArgs(words[3:])
	ctx := base.WithEnviron(t.Context(), []string{"LINES_TEST=from the shell"})
	if err := cmd.ExecuteContext(ctx); err != nil {
		t.Fatalf("%v: %s", err, line)
	}
	return raw
}

// curlJSON returns the body that a shell passes to curl.
func curlJSON(t *testing.T, line string) []byte {
	t.Helper()
	script := `curl() { while [ "$1" != -d ]; do shift; done; printf %s "$2"; }` + "\n" + line
	out, err := exec.CommandContext(t.Context(), "bash", "-c", script).Output()
	if err != nil {
		t.Fatalf("%v: %s", err, line)
	}
	return out
}
