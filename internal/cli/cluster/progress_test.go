package cluster

import (
	"bytes"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/musterhq/muster/client"
)

// A pipe gets a line for each change, with the cluster's name and the time since it was rented.
func TestProgressInAPipe(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	g := progress{w: &out, printed: map[string]string{}}
	c := client.Cluster{Name: "train", State: client.Provisioning, CreatedAt: time.Now().Add(-1500 * time.Millisecond),
		Nodes: []client.Node{{Rank: 0, State: "starting", Progress: client.Progress{Step: "guest"}}}}
	g.update(c)
	g.update(c)
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if len(lines) != 2 || !regexp.MustCompile(`^\s*\d+\.\d s  train  rank 0  starting  guest$`).MatchString(lines[1]) {
		t.Errorf("%q", lines)
	}
}

func TestKeyNote(t *testing.T) {
	t.Parallel()
	org := []client.SSHKey{{Fingerprint: "SHA256:a"}, {Fingerprint: "SHA256:b"}}
	if note := keyNote(org, map[string]bool{"SHA256:b": true}); note != "" {
		t.Errorf("a key is here: %q", note)
	}
	if note := keyNote(org, map[string]bool{"SHA256:c": true}); !strings.Contains(note, "muster ssh-key add") {
		t.Errorf("no key is here: %q", note)
	}
	if note := keyNote(nil, nil); !strings.Contains(note, "has no SSH keys") {
		t.Errorf("no key at all: %q", note)
	}
}
