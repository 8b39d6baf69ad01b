package container

import (
	"bytes"
	"cmp"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/moby/moby/api/types/system"
)

// Where containerd is found and configured if nothing says otherwise.
var (
	containerdConfig = "/etc/containerd/config.toml"
	containerdSocket = "/run/containerd/containerd.sock"
)

var containerdRoot = regexp.MustCompile(`(?m)^\s*root\s*=\s*["']([^"']+)["']`)

// ofContainerd reports whether images and containers are in containerd's store, the default of Docker 29.
func ofContainerd(info system.Info) bool {
	return slices.ContainsFunc(info.DriverStatus, func(kv [2]string) bool {
		return kv[0] == "driver-type" && strings.HasPrefix(kv[1], "io.containerd.snapshotter.")
	})
}

// dataRoot returns the folder whose file system images and containers are on: with containerd's image store it is
// containerd's folder and not Docker's. Docker does not say where that is; the arguments of the process that listens on
// containerd's socket do, or its configuration.
func dataRoot(info system.Info) string {
	if !ofContainerd(info) {
		return info.DockerRootDir
	}
	socket, own := containerdSocket, false
	if c := info.Containerd; c != nil && c.Address != "" {
		socket, own = c.Address, strings.Contains(c.Address, "/docker/containerd/") // one that Docker started
	}
	root, config := containerdArgs(socket)
	if root != "" {
		return root
	}
	if b, err := os.ReadFile(cmp.Or(config, containerdConfig)); err == nil && (config != "" || !own) {
		if m := containerdRoot.FindSubmatch(b); m != nil {
			return string(m[1])
		}
	}
	if own {
		return filepath.Join(info.DockerRootDir, "containerd", "daemon")
	}
	return "/var/lib/containerd"
}

// containerdArgs returns the folder and the configuration that the process behind a socket was started with, "" if it
// was not given one or there is no such process.
func containerdArgs(socket string) (root, config string) {
	pid, err := peerPID(strings.TrimPrefix(socket, "unix://"))
	if err != nil || pid <= 1 {
		return "", ""
	}
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cmdline")
	if err != nil {
		return "", ""
	}
	args := strings.Split(string(bytes.TrimRight(b, "\x00")), "\x00")
	for i, arg := range args {
		name, value, given := strings.Cut(strings.TrimLeft(arg, "-"), "=")
		if !strings.HasPrefix(arg, "-") {
			continue
		}
		if !given && i+1 < len(args) {
			value = args[i+1]
		}
		switch name {
		case "root":
			root = value
		case "config", "c":
			config = value
		}
	}
	return root, config
}
