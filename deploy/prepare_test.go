package deploy

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// stubScript stands for the programs that --prepare calls. It keeps what is installed in $STATE and notes each call
// that changes something.
const stubScript = `#!/bin/bash
name=${0##*/}
has() { grep -qx -- "$1" "$STATE/packages" 2>/dev/null; }
case $name in
apt-get | systemctl | ubuntu-drivers | curl | nvidia-ctk) echo "$name $*" >>"$STATE/calls" ;;
esac
case "$name $1" in
"apt-get install") shift 2; printf '%s\n' "$@" >>"$STATE/packages" ;;
"ubuntu-drivers install") printf '%s\n' nvidia-driver-570-server libnvidia-compute-570-server >>"$STATE/packages" ;;
"dpkg --print-architecture") echo amd64 ;;
"dpkg-query -W")
  case $3 in
  *Status*binary*) grep nvidia "$STATE/packages" | sed 's/^/installed /' ;;
  *binary*) grep nvidia-driver "$STATE/packages" ;;
  *) has "$4" && printf installed ;;
  esac ;;
"apt-mark showhold") cat "$STATE/holds" ;;
"apt-mark hold") shift; echo "apt-mark hold $*" >>"$STATE/calls"; printf '%s\n' "$@" >>"$STATE/holds" ;;
"snap list") [ -e "$STATE/snap" ] ;;
"ufw status") cat "$STATE/ufw" 2>/dev/null || echo "Status: inactive" ;;
"ufw allow") echo "ufw $*" >>"$STATE/calls"; printf '%s ALLOW Anywhere\n' "$2" >>"$STATE/ufw" ;;
"findmnt -n") cat "$STATE/disk" ;;
"nvidia-ctk cdi") echo "cdiVersion: 0.6.0" >"${3#--output=}" ;;
"systemctl enable")
  wants=${STATE%/*}/root/etc/systemd/system/multi-user.target.wants
  mkdir -p "$wants"; ln -sf /x "$wants/$4" ;;
"systemctl restart")
  [ "$2" != nvidia-cdi-refresh.service ] || { mkdir -p "${STATE%/*}/root/var/run/cdi"
    echo "cdiVersion: 0.6.0" >"${STATE%/*}/root/var/run/cdi/nvidia.yaml"; } ;;
esac
code=$?
if [ "$name" = curl ]; then
  while [ $# -gt 1 ]; do [ "$1" = -o ] && echo key >"$2"; shift; done
fi
exit $code
`

// bareMachine is a root directory and the state of the stubs.
type bareMachine struct {
	t                *testing.T
	root, state, bin string
}

func newBareMachine(t *testing.T, system, version, vendor string) *bareMachine {
	t.Helper()
	dir := t.TempDir()
	m := &bareMachine{t, filepath.Join(dir, "root"), filepath.Join(dir, "state"), filepath.Join(dir, "bin")}
	m.write(m.root+"/etc/os-release", "NAME=\"x\"\nID="+system+"\nVERSION_ID=\""+version+"\"\n")
	m.write(m.root+"/sys/bus/pci/devices/0000:01:00.0/vendor", vendor+"\n")
	m.write(m.root+"/sys/bus/pci/devices/0000:01:00.0/class", "0x030200\n")
	m.write(m.root+"/proc/sys/net/ipv4/ip_local_port_range", "32768\t60999\n")
	m.write(m.state+"/disk", "ext4 rw,relatime\n")
	m.write(m.state+"/packages", "")
	m.write(m.state+"/holds", "")
	m.write(m.root+"/etc/apt/sources.list.d/distribution.list", "")
	for _, name := range []string{"apt-get", "systemctl", "ubuntu-drivers", "curl", "nvidia-ctk", "dpkg", "dpkg-query",
		"apt-mark", "snap", "ufw", "findmnt"} {
		m.write(m.bin+"/"+name, stubScript)
	}
	return m
}

func (m *bareMachine) write(file, text string) {
	m.t.Helper()
	if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, []byte(text), 0o755)); err != nil {
		m.t.Fatal(err)
	}
}

func (m *bareMachine) read(file string) string {
	b, err := os.ReadFile(file)
	if err != nil && !os.IsNotExist(err) {
		m.t.Fatal(err)
	}
	return string(b)
}

func (m *bareMachine) prepare(args ...string) (string, bool) {
	m.t.Helper()
	cmd := exec.CommandContext(m.t.Context(), "bash", append([]string{"install-agent.sh", "--prepare", "--root", m.root},
		args...)...)
	cmd.Env = append(os.Environ(), "STATE="+m.state, "PATH="+m.bin+":"+os.Getenv("PATH"))
	out, err := cmd.CombinedOutput()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		m.t.Fatal(err)
	}
	return string(out), err == nil
}

// --prepare prints the commands and runs none; --yes runs the same ones; a second run has nothing to do.
func TestPrepare_BareMachines(t *testing.T) {
	t.Parallel()
	for system, driver := range map[string]string{
		"ubuntu 22.04": "ubuntu-drivers install --gpgpu",
		"ubuntu 24.04": "ubuntu-drivers install --gpgpu",
		"debian 12":    "apt-get install -y linux-headers-amd64 nvidia-driver",
	} {
		id, version, _ := strings.Cut(system, " ")
		m := newBareMachine(t, id, version, "0x10de")
		m.write(m.state+"/ufw", "Status: active\n")
		before, ok := m.prepare()
		if !ok || m.read(m.state+"/calls") != "" || m.read(m.root+"/etc/docker/daemon.json") != "" {
			t.Fatalf("%s: a look changed something, or failed:\n%s%s", system, before, m.read(m.state+"/calls"))
		}
		if out, ok := m.prepare("--yes"); !ok || !strings.Contains(out, "Reboot") {
			t.Fatalf("%s:\n%s", system, out)
		}
		calls := m.read(m.state + "/calls")
		for _, want := range []string{driver, "docker-ce docker-ce-cli containerd.io",
			"https://download.docker.com/linux/" + id + "/gpg", "apt-get install -y nvidia-container-toolkit",
			"systemctl reload docker\nsystemctl restart docker", "ufw allow 32768:60999/udp"} {
			if !strings.Contains(calls, want) {
				t.Errorf("%s: --yes did not run %q:\n%s", system, want, calls)
			}
		}
		for line := range strings.Lines(calls) {
			if line = strings.TrimSpace(line); !strings.HasPrefix(line, "apt-mark") &&
				!strings.Contains(strings.ReplaceAll(before, "'", ""), line) {
				t.Errorf("%s: it ran %q, which it had not printed:\n%s", system, line, before)
			}
		}
		if !strings.Contains(m.read(m.state+"/holds"), "nvidia-driver") {
			t.Errorf("%s: the driver is not held: %s", system, m.read(m.state+"/holds"))
		}
		m.write(m.root+"/proc/driver/nvidia/version", "NVRM version: 570\n") // the reboot
		m.write(m.root+"/etc/systemd/system/nvidia-cdi-refresh.service", "[Service]\n")
		if out, ok := m.prepare("--yes"); !ok || !strings.Contains(m.read(m.state+"/calls"),
			"systemctl enable --now nvidia-cdi-refresh.path nvidia-cdi-refresh.service\n"+
				"systemctl restart nvidia-cdi-refresh.service\n") {
			t.Errorf("%s: after the reboot:\n%s", system, out)
		}
		done := m.read(m.state + "/calls")
		m.write(m.state+"/disk", "xfs rw,relatime,prjquota\n")
		if out, ok := m.prepare("--yes"); !ok || !strings.Contains(out, "This machine is prepared. Nothing to change.") ||
			m.read(m.state+"/calls") != done {
			t.Errorf("%s: the third run:\n%s", system, out)
		}
	}
}

// The GPUs are described where the toolkit keeps the description up to date. A file in /etc/cdi, which nothing keeps up
// to date, goes; a toolkit that cannot do so has to be updated.
func TestPrepare_DescribesGPUs(t *testing.T) {
	t.Parallel()
	for _, refreshes := range []bool{true, false} {
		m := newBareMachine(t, "ubuntu", "24.04", "0x10de")
		m.write(m.state+"/packages", "nvidia-driver-570-server\nnvidia-container-toolkit\n")
		m.write(m.state+"/disk", "xfs rw,prjquota\n")
		m.write(m.root+"/proc/driver/nvidia/version", "NVRM version: 570\n")
		m.write(m.root+"/etc/cdi/nvidia.yaml", "cdiVersion: 0.5.0\n")
		if refreshes {
			m.write(m.root+"/usr/lib/systemd/system/nvidia-cdi-refresh.service", "[Service]\n")
		}
		out, ok := m.prepare("--yes")
		calls := m.read(m.state + "/calls")
		if !ok || m.read(m.root+"/etc/cdi/nvidia.yaml") != "" || m.read(m.root+"/var/run/cdi/nvidia.yaml") == "" ||
			strings.Contains(calls, "enable --now nvidia-cdi-refresh.path") != refreshes ||
			strings.Contains(calls, "nvidia-ctk cdi generate --output="+m.root+"/var/run/cdi/nvidia.yaml") == refreshes ||
			strings.Contains(out, "Update nvidia-container-toolkit") == refreshes {
			t.Errorf("refreshes: %t\n%s\n%s", refreshes, out, calls)
		}
		if out, ok := m.prepare("--yes"); !ok || m.read(m.state+"/calls") != calls {
			t.Errorf("refreshes: %t, again:\n%s", refreshes, out)
		}
	}
}

// What is in Docker's settings stays there, and a Docker of the distribution is not replaced.
func TestPrepare_KeepsDocker(t *testing.T) {
	t.Parallel()
	m := newBareMachine(t, "debian", "12", "0x10de")
	m.write(m.state+"/packages", "docker.io\n")
	m.write(m.root+"/etc/docker/daemon.json",
		`{"data-root":"/mnt/docker","features":{"buildkit":true},"runtimes":{"nvidia":{"path":"/opt/nvidia"}}}`)
	if out, ok := m.prepare("--yes"); !ok || !strings.Contains(out, "mkfs.xfs") {
		t.Fatal(out)
	}
	if calls := m.read(m.state + "/calls"); strings.Contains(calls, "docker-ce") {
		t.Error("Docker was replaced:\n" + calls)
	}
	var settings struct {
		Root     string                       `json:"data-root"`
		Live     bool                         `json:"live-restore"`
		Features map[string]bool              `json:"features"`
		Runtimes map[string]map[string]string `json:"runtimes"`
	}
	if err := json.Unmarshal([]byte(m.read(m.root+"/etc/docker/daemon.json")), &settings); err != nil {
		t.Fatal(err)
	}
	if settings.Root != "/mnt/docker" || !settings.Live || !settings.Features["cdi"] || !settings.Features["buildkit"] ||
		settings.Runtimes["nvidia"]["path"] != "/opt/nvidia" {
		t.Errorf("%+v", settings)
	}
}

// Machines that cannot be prepared get one clear answer, and nothing is changed.
func TestPrepare_Refusals(t *testing.T) {
	t.Parallel()
	snap := newBareMachine(t, "ubuntu", "24.04", "0x10de")
	snap.write(snap.state+"/snap", "")
	for want, m := range map[string]*bareMachine{
		"--prepare sets up NVIDIA GPUs only":       newBareMachine(t, "ubuntu", "24.04", "0x1002"),
		"no NVIDIA GPU is on the PCI bus":          newBareMachine(t, "ubuntu", "24.04", "0x8086"),
		"this machine has fedora 42":               newBareMachine(t, "fedora", "42", "0x10de"),
		"Remove it with \"snap remove docker\"":    snap,
		"--yes is for --prepare":                   nil,
		"--prepare can be combined with --yes and": nil,
	} {
		var out string
		var ok bool
		switch {
		case m != nil:
			out, ok = m.prepare("--yes")
			if calls := m.read(m.state + "/calls"); calls != "" {
				t.Errorf("%s: it changed something:\n%s", want, calls)
			}
		case strings.HasPrefix(want, "--yes"):
			out, ok = newMachine(t).install("", "--yes")
		default:
			out, ok = newMachine(t).install("", "--prepare")
		}
		if ok || !strings.Contains(out, want) {
			t.Errorf("no %q in:\n%s", want, out)
		}
	}
}
