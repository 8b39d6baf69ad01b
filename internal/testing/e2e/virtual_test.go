//go:build machine

package e2e

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/musterhq/muster/agent/machine/gpu/fakeprofile"
	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/money"
	"github.com/musterhq/muster/internal/testing/testfield"
	"github.com/musterhq/muster/internal/testing/testnet"
)

// An emulated processor that shares a busy machine takes minutes for what others do in seconds.
func init() { patience = 15 * time.Minute }

// virtual is a virtual machine on the world's internet, on which an operator puts the agent of a release.
type virtual struct {
	*testnet.Machine
	w      *world
	id     id.Host
	fabric string // with which it is enrolled; "" = none
}

// Settings that show programs the simulated GPUs, at the places of their profile: the machine is not shared.
const (
	fakeGPUs = "/etc/fake-gpus.profile"
	placed   = "MUSTER_FAKE_NVML_PLACED=1"
)

// boot starts a machine with two GPUs, one at each of its NUMA nodes. install waits for it. memoryMB of 0 is 4096.
func (w *world) boot(t *testing.T, name, address string, memoryMB int) *virtual {
	t.Helper()
	gpus, err := fakeprofile.Host("NVIDIA H100 80GB HBM3", 2, w.Net.Dir()+name)
	if err != nil {
		t.Fatal(err)
	}
	for i := range gpus.GPUs {
		gpus.GPUs[i].NUMA = int64(i)
	}
	profile := filepath.Join(w.Net.Dir(), name+".profile")
	library, err := os.ReadFile(filepath.Join(bin, "fakenvml", "libnvidia-ml.so.1"))
	if err == nil {
		err = gpus.Save(profile)
	}
	if err != nil {
		t.Fatal(err)
	}
	// The library lies where the driver's would; it shows the same GPUs to every program.
	v := &virtual{
		w: w,
		Machine: w.Net.Machine(name, w.Internet, testnet.MachineConfig{
			Image:    os.Getenv("MUSTER_TEST_MACHINE"),
			Address:  address,
			From:     w.People,
			DockerGB: 60,
			MemoryMB: memoryMB,
			Env:      []string{fakeprofile.Env + "=" + fakeGPUs, placed},
			Files: map[string]string{
				"/etc/hosts":       testfield.Names,
				"/etc/environment": fakeprofile.Env + "=" + fakeGPUs + "\n" + placed + "\n",
				fakeGPUs:           read(t, profile),
				"/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1": string(library),
			},
		}),
	}
	t.Cleanup(func() {
		if t.Failed() {
			out, _ := v.Try("systemctl status --no-pager muster-agent docker; journalctl -u muster-agent --no-pager | tail -60")
			t.Logf("--- %s\n%s", name, out)
		}
	})
	return v
}

func read(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// install does what docs/hosts.md says: verify the release's list, take the hash from it, run the script with a
// one-time token. The agent's options are in a drop-in.
func (v *virtual) install(t *testing.T, options ...string) (said string) {
	t.Helper()
	release := os.Getenv("MUSTER_TEST_RELEASE")
	found, _ := filepath.Glob(filepath.Join(release, "muster-agent-*-linux-amd64.tar.gz"))
	if len(found) != 1 {
		t.Fatalf("one release of the agent is wanted in %q: %v", release, found)
	}
	v.AwaitUp("")
	v.Do("ldconfig")
	archive := filepath.Base(found[0])
	v.Do("mkdir -p /root/release /etc/systemd/system/muster-agent.service.d")
	for _, file := range []string{archive, "SHA256SUMS", "SHA256SUMS.sig", "release.pub"} {
		v.Put("/root/release/"+file, []byte(read(t, filepath.Join(release, file))))
	}
	v.Do("cd /root/release && openssl pkeyutl -verify -rawin -pubin -inkey release.pub -in SHA256SUMS -sigfile " +
		"SHA256SUMS.sig && tar xzf " + archive + " install-agent.sh")
	sum := fmt.Sprintf("%x", sha256.Sum256([]byte(read(t, found[0]))))
	if !strings.Contains(v.Do("cat /root/release/SHA256SUMS"), sum+"  "+archive) {
		t.Fatalf("the list does not name %s with %s", archive, sum)
	}
	v.Put("/etc/systemd/system/muster-agent.service.d/override.conf",
		[]byte("[Service]\nExecStart=\nExecStart=/usr/local/bin/muster-agent launch --state /var/lib/muster-agent "+
			"--allow-registry "+
			v.w.registry()+" "+strings.Join(options, " ")+"\n"))
	v.Put("/root/ca.pem", []byte(read(t, v.w.CA())))
	token, err := v.w.Operator.Hosts.CreateEnrollment(t.Context(), client.CreateEnrollmentRequest{Name: v.Name,
		Region: "home", Fabric: v.fabric})
	if err != nil {
		t.Fatal(err)
	}
	script := "cd /root/release && ./install-agent.sh --archive " + archive + " --sha256 " + sum
	out, err := v.Feed(script+" --url "+testfield.AgentURL+" --ca /root/ca.pem --token-file -",
		strings.NewReader(token.Token))
	t.Logf("%s: the script says\n%s", v.Name, out)
	if err != nil {
		t.Fatal(err)
	}
	var who struct{ Host id.Host }
	if err := json.Unmarshal([]byte(v.Do("cat /var/lib/muster-agent/identity.json")), &who); err != nil {
		t.Fatal(err)
	}
	v.id = who.Host
	return out
}

// sells puts a price on the host and waits until it is for rent.
func (v *virtual) sells(t *testing.T) client.Host {
	t.Helper()
	price := money.Micro(1_000_000)
	if _, err := v.w.Operator.Hosts.Change(t.Context(), v.id,
		client.ChangeHostRequest{Price: new(price.String())}); err != nil {
		t.Fatal(err)
	}
	var h client.Host
	until(t, v.Name+" is for rent", func() (err error) {
		if h, err = v.w.Operator.Hosts.Get(t.Context(), v.id); err == nil && !(h.Selling && h.Reachable) {
			err = fmt.Errorf("%+v", h)
		}
		return err
	})
	return h
}

// mainPID is the unit's process, and whether systemd says that the unit is active.
func (v *virtual) mainPID(t *testing.T) (pid string, active bool) {
	t.Helper()
	out, _ := v.Try("systemctl show --property MainPID --value muster-agent; systemctl is-active muster-agent; " +
		"systemctl is-enabled muster-agent")
	f := strings.Fields(out)
	return f[0], len(f) == 3 && f[1] == "active" && f[2] == "enabled"
}

// checked is one line of what the doctor says.
var checked = regexp.MustCompile(`(?m)^(ok|warn|bad) +([a-z]+) +(.*)$`)

// Whole machines, with Debian's own kernel and systemd, on which the agent of a release is installed as an operator
// does.
func TestAMachine(t *testing.T) {
	w := newWorld(t)
	a := w.boot(t, "machine-a", "203.0.113.60/24", 0)
	v := &machines{w, a}
	for _, tc := range []struct {
		name string
		test func(*machines, *testing.T)
	}{
		{"the script installs it", (*machines).installed},
		{"the unit stays up", (*machines).stays},
		{"a job runs", (*machines).runs},
		{"the kernel's WireGuard carries a training", (*machines).carries},
		{"a disk filler is held", (*machines).fills},
		{"a lease is near its GPU", (*machines).near},
	} {
		if !t.Run(tc.name, func(t *testing.T) { tc.test(v, t) }) && a.id == (id.Host{}) {
			t.Fatal("there is no agent for the rest")
		}
	}
	w.check(t)
}

type machines struct {
	*world
	a *virtual
}

// installed follows docs/hosts.md. The doctor finds nothing to mend: Docker's data is on XFS with project quotas, the
// kernel has WireGuard, the host has a public address.
func (m *machines) installed(t *testing.T) {
	found := checked.FindAllStringSubmatch(m.a.install(t), -1)
	for _, f := range found {
		if f[1] != "ok" {
			t.Errorf("the doctor says: %s", f[0])
		}
	}
	if len(found) < 7 {
		t.Errorf("the script shows %d findings of the doctor's", len(found))
	}
	if h := m.a.sells(t); !h.DiskLimited {
		t.Errorf("the host is not listed as one that limits disks: %+v", h)
	}
}

// stays kills the unit's process.
func (m *machines) stays(t *testing.T) {
	pid, active := m.a.mainPID(t)
	if !active {
		t.Fatal("the unit is not active and enabled")
	}
	m.a.Do("kill -9 " + pid)
	eventually(t, "the unit is active after kill -9", func() bool {
		now, active := m.a.mainPID(t)
		return active && now != pid && now != "0"
	})
	m.a.sells(t)
}
