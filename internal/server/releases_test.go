package server

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/musterhq/muster/internal/fault"
)

// Hosts run the script that is made of a release as root: it has to be whole, and to be fetched over https.
func TestConfig_AgentReleases(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	archive := "muster-agent-1.4-linux-amd64.tar.gz"
	sums := strings.Repeat("ab", 32) + "  " + archive + "\n"
	for name, text := range map[string]string{archive: "", "SHA256SUMS": sums} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, tc := range []struct {
		dir, url string
		good     bool
	}{
		{"", "http://muster.example", true},
		{dir, "https://muster.example", true},
		{dir, "http://muster.example", false},
		{t.TempDir(), "https://muster.example", false},
	} {
		c, err := LoadConfig(map[string]string{"MUSTER_AGENT_RELEASES": tc.dir, "MUSTER_PUBLIC_URL": tc.url})
		if err != nil {
			t.Fatal(err)
		}
		refused := slices.ContainsFunc(fault.From(c.Validate()).Fields,
			func(f fault.Field) bool { return f.Location == "MUSTER_AGENT_RELEASES" })
		if refused == tc.good {
			t.Errorf("%+v: refused %t", tc, refused)
		}
	}
}
