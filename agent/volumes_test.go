package agent_test

import (
	"os/exec"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/musterhq/muster/internal/agentapi"
)

// An image that declares volumes runs, and what it writes there is on the container's own file system: Docker makes no
// volume of its own for it, which disk_gb would not bound.
func TestAnImagesVolumesAreOnTheNodesDisk(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	pushJobAs(t, h.image, func(c *v1.ConfigFile) {
		c.Config.Volumes = map[string]struct{}{"/tmp": {}, "/var/lib/db": {}}
	})
	spec := h.launch(h.spec())
	h.await(spec.LeaseRef, "running", running)
	mounts := 0
	for _, c := range h.containers() {
		out, err := exec.Command("docker", "inspect", "--format", "{{range .Mounts}}{{.Type}} {{.Destination}}\n{{end}}",
			c.ID).CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		mounts += strings.Count(string(out), "bind ")
		if strings.Contains(string(out), "volume ") {
			t.Errorf("a volume of Docker's own:\n%s", out)
		}
	}
	if mounts == 0 {
		t.Error("no mount is seen at all")
	}
	h.want()
	h.await(spec.LeaseRef, "gone", func(st agentapi.LeaseStatus) bool { return st.Gone })
}
