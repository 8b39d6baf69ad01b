package container

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/moby/moby/api/types/system"
)

// The disk that is measured is the one that images and containers are on.
func TestDataRoot(t *testing.T) {
	before := containerdConfig
	t.Cleanup(func() { containerdConfig = before })
	snapshotter := [][2]string{{"driver-type", "io.containerd.snapshotter.v1"}}
	containerdConfig = filepath.Join(t.TempDir(), "config.toml")
	for name, c := range map[string]struct {
		info   system.Info
		config string
		want   string
	}{
		"Docker's store": {system.Info{DockerRootDir: "/nvme/docker"}, `root = "/nvme/containerd"`, "/nvme/docker"},
		"containerd's":   {system.Info{DockerRootDir: "/nvme/docker", DriverStatus: snapshotter}, "", "/var/lib/containerd"},
		"moved": {system.Info{DockerRootDir: "/nvme/docker", DriverStatus: snapshotter},
			"version = 3\n#root = \"/x\"\nroot = '/nvme/containerd'\nstate = \"/run/containerd\"\n", "/nvme/containerd"},
		"Docker's own containerd": {system.Info{DockerRootDir: "/nvme/docker", DriverStatus: snapshotter,
			Containerd: &system.ContainerdInfo{Address: "/var/run/docker/containerd/containerd.sock"}}, "",
			"/nvme/docker/containerd/daemon"},
	} {
		if err := os.WriteFile(containerdConfig, []byte(c.config), 0o644); err != nil {
			t.Fatal(err)
		}
		if got := dataRoot(c.info); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}
