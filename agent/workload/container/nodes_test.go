package container

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/system"

	"github.com/musterhq/muster/internal/agentapi"
)

const gpuAMD = "AMD-7a1c3f5500d10000"

// AMD's GPUs are attached as exactly their nodes, whatever Docker has for NVIDIA's, and the init opens each. The nodes
// of this test are other character devices.
func TestAMDsGPUsAreTheirNodes(t *testing.T) {
	t.Parallel()
	d, e := paper(t, func(c *Config) { c.CheckDir = "/check" })
	d.change(func(i *system.Info) { i.Runtimes = map[string]system.RuntimeWithStatus{"nvidia": {}, "runsc": {}} })
	w := work(t, gpuAMD)
	w.Devices = []string{"/dev/zero", "/dev/null"}
	if _, err := e.EnsureWorkload(t.Context(), w); err != nil {
		t.Fatal(err)
	}
	c := d.created[0]
	var nodes []string
	for _, n := range c.HostConfig.Devices {
		if n.PathInContainer != n.PathOnHost || n.CgroupPermissions != "rw" {
			t.Errorf("%+v", n)
		}
		nodes = append(nodes, n.PathOnHost)
	}
	if !slices.Equal(nodes, w.Devices) || len(c.HostConfig.DeviceRequests) != 0 || c.HostConfig.Runtime != "runc" ||
		!slices.Contains(c.Env, "NVIDIA_VISIBLE_DEVICES=void") || c.HostConfig.Privileged || len(c.HostConfig.CapDrop) != 1 {
		t.Errorf("%+v", c.HostConfig)
	}
	if line := strings.Join(c.Entrypoint, " "); !strings.Contains(line, "--devices /dev/zero,/dev/null") ||
		strings.Contains(line, "--gpus") {
		t.Errorf("the init would not open them, or would run CUDA: %s", line)
	}
	refused := func(why string, w WorkloadSpec) {
		t.Helper()
		made := len(d.created)
		_, err := e.EnsureWorkload(t.Context(), w)
		if r := (Refusal{}); !errors.As(err, &r) || !strings.Contains(r.Detail, why) || len(d.created) != made {
			t.Errorf("%v, want a refusal that says %q", err, why)
		}
	}
	w.Devices = []string{"/dev/zero"}
	refused("not known", w)
	w.Devices = []string{"/dev/zero", "/dev/dri/renderD999"}
	refused("renderD999", w)
	w.Devices = []string{"/dev/zero", "/etc/hostname"}
	refused("character device", w)
	w.Devices = []string{"/dev/zero", "/dev/null"}
	w.Lease.Runtime = agentapi.RuntimeRunsc
	refused("no proxy for AMD", w)
	both := work(t, gpuAMD, "GPU-a")
	both.Devices = w.Devices
	d.change(func(i *system.Info) { i.Runtimes = nil })
	refused("attach", both)
}

// The nodes' groups are the processes', so that a user that is not root can open them.
func TestNodesBringTheirGroups(t *testing.T) {
	t.Parallel()
	tty := "/dev/tty" // group tty, or that of the machine's root where it is not set up
	info, err := os.Stat(tty)
	if err != nil {
		t.Fatal(err)
	}
	var hc container.HostConfig
	if err := addNodes(&hc, []string{"/dev/null", tty, tty}); err != nil {
		t.Fatal(err)
	}
	want := groupOf(info)
	if got := strings.Join(hc.GroupAdd, ","); got != want {
		t.Errorf("groups %q, want %q", got, want)
	}
}

// The check of AMD's GPUs opens their nodes in a real container, and reports what it could not open.
func TestCheckOfNodes(t *testing.T) {
	t.Parallel()
	e, _, _ := setUp(t)
	e.cfg.Simulated = false
	nodes := []string{"/dev/zero", "/dev/null"}
	res, err := e.CheckGPUs(t.Context(), []string{gpuAMD}, nodes)
	if err != nil || res.Failure != nil || !slices.Equal(res.Opened, nodes) || len(res.GPUs) != 0 {
		t.Errorf("%v, %+v", err, res)
	}
	missing := []string{"/dev/zero", filepath.Join(t.TempDir(), "kfd")}
	if _, err := e.CheckGPUs(t.Context(), []string{gpuAMD}, missing); err == nil {
		t.Error("a node that is not there")
	}
}

// groupOf returns the group of a file as addNodes adds it: "" for root's.
func groupOf(info fs.FileInfo) string {
	gid := info.Sys().(*syscall.Stat_t).Gid
	if gid == 0 {
		return ""
	}
	return strconv.FormatUint(uint64(gid), 10)
}
