package container

import (
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/moby/moby/api/types/system"
)

// The disk that is measured is the one that images and containers are on.
func TestDataRoot(t *testing.T) {
	config, socket := containerdConfig, containerdSocket
	t.Cleanup(func() { containerdConfig, containerdSocket = config, socket })
	containerdSocket = filepath.Join(t.TempDir(), "no.sock")
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
			Containerd: &system.ContainerdInfo{Address: "/nowhere/docker/containerd/containerd.sock"}}, "",
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

// The folder of a running containerd is read from the arguments of its process, and from the configuration that they
// name.
func TestDataRootOfARunningContainerd(t *testing.T) {
	dir := t.TempDir()
	config := filepath.Join(dir, "c.toml")
	if err := os.WriteFile(config, []byte("root = '/nvme/by-config'\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	snapshotter := [][2]string{{"driver-type", "io.containerd.snapshotter.v1"}}
	for i, c := range []struct {
		args []string
		want string
	}{
		{[]string{"--root", "/nvme/by-flag"}, "/nvme/by-flag"},
		{[]string{"--root=/nvme/by-flag", "--config", config}, "/nvme/by-flag"},
		{[]string{"--config", config}, "/nvme/by-config"},
		{[]string{"-c", config, "--log-level", "warn"}, "/nvme/by-config"},
	} {
		socket := filepath.Join(dir, strconv.Itoa(i)+".sock")
		cmd := exec.Command("/proc/self/exe", append([]string{"-test.run=^TestListens$", "--"}, c.args...)...)
		cmd.Env = append(os.Environ(), listenEnv+"="+socket)
		stdin, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		stdout, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		_, _ = stdout.Read(make([]byte, 1)) // it listens
		got := dataRoot(system.Info{DriverStatus: snapshotter, Containerd: &system.ContainerdInfo{Address: socket}})
		if got != c.want {
			t.Errorf("%q: %s, want %s", c.args, got, c.want)
		}
		stdin.Close()
		_ = cmd.Wait()
	}
}

// listenEnv makes TestListens the process behind a socket, until its input ends.
const listenEnv = "MUSTER_TEST_LISTEN"

func TestListens(t *testing.T) {
	socket := os.Getenv(listenEnv)
	if socket == "" {
		return // in the test's own process
	}
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	os.Stdout.WriteString("\n")
	_, _ = io.Copy(io.Discard, os.Stdin)
}
