package testnet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Docker is the container engine of a host.
type Docker struct {
	host    *Host
	Socket  string // unix:///…, also valid outside of the host
	dir     string
	config  string // its daemon.json
	daemons []*exec.Cmd
}

// patience is how long to wait for daemons on a busy machine.
const patience = 2 * time.Minute

// Docker starts an engine on the host and returns when it answers. It starts containerd separately: a dockerd that has
// its own containerd as a child does not recover well from a kill.
func (h *Host) Docker() *Docker {
	h.net.t.Helper()
	return h.DockerWith(cmp.Or(os.Getenv(DaemonEnv), "{}")) // not this machine's own configuration
}

// DaemonEnv names the environment variable with the daemon.json of the engines that tests start. scripts/with-engine
// sets it to choose the image store.
const DaemonEnv = "MUSTER_TEST_DAEMON"

// DockerWith is Docker with the test's daemon.json.
func (h *Host) DockerWith(config string) *Docker {
	h.net.t.Helper()
	d := h.docker(config)
	d.Start()
	return d
}

// DockerOnBtrfs is Docker whose data is on a btrfs of its own, of so many megabytes, where the size of containers can
// be limited. The file system is in a file and mounted in the host's own namespace, so it disappears with the host.
func (h *Host) DockerOnBtrfs(mb int64) *Docker {
	h.net.t.Helper()
	d := h.docker(`{"storage-driver": "btrfs"}`)
	disk, data := filepath.Join(d.dir, "disk"), filepath.Join(d.dir, "data")
	err := os.Mkdir(data, 0o711)
	if err == nil {
		err = os.WriteFile(disk, nil, 0o600)
	}
	if err == nil {
		err = os.Truncate(disk, mb<<20)
	}
	if err != nil {
		h.net.t.Fatal("testnet:", err)
	}
	h.Run("mkfs.btrfs", "--quiet", disk)
	h.Run("mount", "-t", "btrfs", "-o", "loop", disk, data)
	d.Start()
	return d
}

func (h *Host) docker(config string) *Docker {
	d := &Docker{host: h, dir: filepath.Join(h.Dir(), "docker"), config: config}
	d.Socket = "unix://" + filepath.Join(d.dir, "d.sock")
	if err := os.MkdirAll(d.dir, 0o711); err != nil {
		h.net.t.Fatal("testnet:", err)
	}
	return d
}

// Start starts the daemons, the first time or after Kill.
func (d *Docker) Start() {
	t := d.host.net.t
	t.Helper()
	sock := filepath.Join(d.dir, "c.sock")
	in := func(parts ...string) string { return filepath.Join(append([]string{d.dir}, parts...)...) }
	d.run("containerd", "--config", "/dev/null", "--root", in("containerd"), "--state", in("containerd-run"), "--address",
		sock)
	d.await("containerd", func() bool {
		return d.host.Command(context.Background(), "ctr", "--address", sock, "version").Run() == nil
	})
	_ = os.Remove(in("docker.pid")) // left by a killed daemon
	config := in("daemon.json")
	if err := os.WriteFile(config, []byte(d.config), 0o600); err != nil {
		t.Fatal("testnet:", err)
	}
	d.run("dockerd", "--config-file", config, "-H", d.Socket, "--containerd", sock, "--data-root", in("data"),
		"--exec-root", in("run"),
		"--pidfile", in("docker.pid"), "--live-restore", "--cgroup-parent", d.cgroup(), "--bip", "172.31.0.1/24")
	d.await("dockerd", func() bool { return exec.Command("docker", "-H", d.Socket, "version").Run() == nil })
}

// Kill kills both daemons with SIGKILL. Containers continue to run.
func (d *Docker) Kill() {
	for _, cmd := range d.daemons {
		_ = cmd.Process.Kill()
	}
	d.daemons = nil
}

// cgroup is the parent cgroup of the host's containers, by which the remains of a killed test are found.
func (d *Docker) cgroup() string {
	return "/" + filepath.Base(d.host.net.dir) + "/" + d.host.Name
}

func (d *Docker) run(name string, args ...string) {
	t := d.host.net.t
	t.Helper()
	log, err := os.OpenFile(filepath.Join(d.dir, name+".log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		t.Fatal("testnet:", err)
	}
	defer log.Close()
	cmd := d.host.Command(context.Background(), name, args...)
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		t.Fatalf("testnet: start %s: %v", name, err)
	}
	d.daemons = append(d.daemons, cmd)
	go cmd.Wait() // it ends with the host at the latest
}

func (d *Docker) await(name string, ok func() bool) {
	t := d.host.net.t
	t.Helper()
	for deadline := time.Now().Add(patience); !ok(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			log, _ := os.ReadFile(filepath.Join(d.dir, name+".log"))
			t.Fatalf("testnet: %s: %s does not come up:\n%s", d.host.Name, name, tail(string(log), 20))
		}
	}
}

// Do runs the docker client on the engine and returns its output. A failure fails the test.
func (d *Docker) Do(args ...string) string {
	d.host.net.t.Helper()
	out, err := exec.Command("docker", append([]string{"-H", d.Socket}, args...)...).CombinedOutput()
	if err != nil {
		d.host.net.t.Fatalf("%s: docker %s: %v\n%s", d.host.Name, strings.Join(args, " "), err, out)
	}
	return strings.TrimSpace(string(out))
}

func tail(s string, n int) string {
	lines := strings.Split(strings.TrimSpace(s), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}

// remove deletes a net's folder and the cgroups that its containers left.
func remove(path string) error {
	var cgroups []string
	for _, root := range []string{"/sys/fs/cgroup", "/sys/fs/cgroup/*"} {
		found, _ := filepath.Glob(filepath.Join(root, filepath.Base(path)))
		cgroups = append(cgroups, found...)
	}
	for _, c := range cgroups {
		var folders []string
		_ = filepath.WalkDir(c, func(p string, e fs.DirEntry, err error) error {
			if err == nil && e.IsDir() {
				folders = append(folders, p)
			}
			return nil
		})
		for i := len(folders) - 1; i >= 0; i-- { // deepest first
			if err := unix.Rmdir(folders[i]); err != nil && !errors.Is(err, unix.EBUSY) {
				return fmt.Errorf("remove %s: %w", folders[i], err)
			}
		}
	}
	return os.RemoveAll(path)
}
