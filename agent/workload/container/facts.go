package container

import (
	"bufio"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/moby/moby/client"

	"github.com/musterhq/muster/internal/agentapi"
)

// Facts are Docker's part of a host's inventory.
type Facts struct {
	Version, API, StorageDriver, RootDir string
	Runc                                 string // version, "" if Docker does not report it
	LiveRestore, DiskLimited             bool
	CDI                                  CDI    // how GPUs could be attached
	NVIDIARuntime                        bool   // other way to attach them
	HookRefuses                          string // why that way is closed though Docker has the runtime; "" = it is open
	Systemd                              bool   // systemd manages the control groups of containers
	Toolkit                              string // NVIDIA Container Toolkit, "" without one
	Runsc                                *Runsc // gVisor, if Docker has it
	Driver                               string // version of NVIDIA's loaded kernel module; "" without one
	Problems                             []agentapi.Problem
}

// Facts gets the facts from the daemon. A daemon that does not answer is a problem of severity bad, not an error: the
// rest of the inventory remains useful.
func (e *Engine) Facts(ctx context.Context) Facts {
	res, err := e.docker.Info(ctx, client.InfoOptions{})
	if err != nil {
		return Facts{Problems: []agentapi.Problem{{
			Code:     "docker_unreachable",
			Severity: "bad",
			Cause:    "The Docker daemon does not answer.",
			Evidence: clip(err.Error()),
			Fix:      "Install Docker Engine 20.10 or newer, start it, and run the agent as root.",
		}}}
	}
	info := res.Info
	f := Facts{
		Version:       info.ServerVersion,
		API:           e.docker.ClientVersion(),
		StorageDriver: info.Driver,
		RootDir:       dataRoot(info),
		LiveRestore:   info.LiveRestoreEnabled,
		CDI:           readCDI(info.CDISpecDirs, info.DiscoveredDevices),
		Toolkit:       toolkitVersion(ctx),
	}
	if v, err := e.docker.ServerVersion(ctx, client.ServerVersionOptions{}); err == nil {
		for _, c := range v.Components {
			if c.Name == "runc" {
				f.Runc = c.Version
			}
		}
	}
	if _, ok := info.Runtimes["nvidia"]; ok {
		f.HookRefuses = hookRefuses("/")
		f.NVIDIARuntime = f.HookRefuses == ""
	}
	if _, err := os.Stat(f.RootDir); err != nil { // of a containerd elsewhere
		f.RootDir = info.DockerRootDir
	}
	f.Systemd = info.CgroupDriver == "systemd"
	f.Runsc, f.Driver = runscOf(info.Runtimes), loadedDriver()
	if f.Runsc != nil && f.Driver != "" && f.Runsc.has("nvproxy", "true") {
		f.Runsc.listDrivers(ctx)
	}
	backing := ""
	for _, kv := range info.DriverStatus {
		if kv[0] == "Backing Filesystem" {
			backing = kv[1]
		}
	}
	f.DiskLimited = diskLimited(info.Driver, backing, info.DockerRootDir)
	f.Problems = f.judge()
	return f
}

// Fill writes the facts into inv and appends the problems.
func (f Facts) Fill(inv *agentapi.Inventory) {
	inv.DockerVersion, inv.DockerAPI, inv.StorageDriver = f.Version, f.API, f.StorageDriver
	inv.RuncVersion = f.Runc
	inv.LiveRestore, inv.DiskLimited, inv.ToolkitVersion = f.LiveRestore, f.DiskLimited, f.Toolkit
	inv.Problems = append(inv.Problems, f.Problems...)
}

// Attach returns the best way to attach these real GPUs, given by UUID; ok is false if there is none.
func (f Facts) Attach(gpus []string) (mode Attach, ok bool) {
	switch {
	case ofAMD(gpus):
		return AttachNodes, true
	case f.CDI.usable(gpus):
		return AttachCDI, true
	case f.NVIDIARuntime && !slices.ContainsFunc(gpus, isSlice): // which needs device files that only CDI names
		return AttachNVIDIA, true
	}
	return AttachNone, false
}

// isSlice reports whether a UUID is that of a MIG device.
func isSlice(uuid string) bool { return strings.HasPrefix(uuid, "MIG-") }

// Lacks returns the devices that cannot be attached by CDI: no specification names them, or it does so wrongly.
func (f Facts) Lacks(gpus []string) []string {
	return slices.DeleteFunc(slices.Clone(gpus), func(g string) bool { return f.CDI.usable([]string{g}) })
}

// Wrong returns what is wrong with the CDI specifications of these devices.
func (f Facts) Wrong(gpus []string) []string { return f.CDI.wrong(gpus) }

// AttachProblem returns what keeps GPUs from being attached at all, or from being attached by CDI; nil if nothing does.
func (f Facts) AttachProblem(gpus []string) *agentapi.Problem {
	if ofAMD(gpus) {
		return nil
	}
	p := f.CDI.problem(gpus)
	if p != nil {
		p.Fix = f.DescribeGPUs()
	}
	if mode, ok := f.Attach(gpus); ok {
		if p == nil && mode == AttachNVIDIA && f.Systemd && len(gpus) > 0 {
			return f.byHook()
		}
		return p
	}
	if p != nil {
		p.Severity = "bad"
		if f.HookRefuses != "" {
			p.Evidence += "; " + f.HookRefuses
		}
		return p
	}
	if f.HookRefuses != "" {
		return &agentapi.Problem{
			Code:     "no_gpu_runtime",
			Severity: "bad",
			Cause:    "NVIDIA's runtime is set to CDI, so that its hook attaches no GPUs, and Docker has no CDI specification.",
			Evidence: f.HookRefuses,
			Fix:      f.DescribeGPUs() + " " + dockerCDI,
		}
	}
	return &agentapi.Problem{
		Code:     "no_gpu_runtime",
		Severity: "bad",
		Cause:    "Docker cannot attach the GPUs to containers.",
		Evidence: "neither a CDI specification nor the nvidia runtime",
		Fix:      "Install nvidia-container-toolkit. " + f.DescribeGPUs() + " " + dockerCDI,
	}
}

// dockerCDI is how Docker is made to read CDI specifications.
const dockerCDI = "Docker 28.2 or newer reads the specification; Docker 25 to 28.1 needs \"features\": " +
	"{\"cdi\": true} in /etc/docker/daemon.json."

// DescribeGPUs returns how an operator gets a CDI specification that matches this host.
func (f Facts) DescribeGPUs() string { return describeGPUs(f.Toolkit) }

// byHook returns the problem of GPUs that NVIDIA's runtime attaches by a hook.
func (f Facts) byHook() *agentapi.Problem {
	return &agentapi.Problem{
		Code:     "gpus_by_hook",
		Severity: "warn",
		Cause: "NVIDIA's runtime attaches the GPUs by a hook that systemd does not know of: nodes could lose them when " +
			"systemd reads its configuration again. The agent attaches the device nodes a second time to prevent that. " +
			"While a GPU has fallen off the bus, the hook attaches none of the others.",
		Evidence: "Docker " + f.Version + " with systemd's control groups, no CDI specification",
		Fix:      "Use CDI: " + f.DescribeGPUs() + " " + dockerCDI,
	}
}

// minToolkit is the first NVIDIA Container Toolkit from which a container cannot take over the host (CVE-2025-23266).
const minToolkit = "1.17.8"

func (f Facts) judge() []agentapi.Problem {
	var out []agentapi.Problem
	if p := f.CDI.stale(); p != nil {
		out = append(out, *p)
	}
	if f.Toolkit != "" && versionLess(f.Toolkit, minToolkit) {
		out = append(out, agentapi.Problem{Code: "toolkit_too_old", Severity: "bad",
			Cause:    "This NVIDIA Container Toolkit lets a container take over the host (CVE-2025-23266).",
			Evidence: "nvidia-ctk " + f.Toolkit, Fix: "Update nvidia-container-toolkit to " + minToolkit + " or newer."})
	}
	if !f.LiveRestore {
		out = append(out, agentapi.Problem{
			Code:     "no_live_restore",
			Severity: "warn",
			Cause:    "A restart of the Docker daemon ends every running node.",
			Evidence: `"live-restore" is off`,
			Fix:      `Put {"live-restore": true} into /etc/docker/daemon.json and reload Docker.`,
		})
	}
	if !f.DiskLimited {
		out = append(out, agentapi.Problem{Code: "disk_not_limited", Severity: "warn",
			Cause:    "A node can fill the whole disk: this storage driver enforces no size per container.",
			Evidence: f.StorageDriver, Fix: "Put Docker's data on XFS mounted with pquota, or use the btrfs or zfs driver."})
	}
	return out
}

// diskLimited reports whether the storage driver accepts a size: overlay2 does only on XFS with project quotas.
func diskLimited(driver, backing, root string) bool {
	switch driver {
	case "btrfs", "zfs":
		return true
	case "overlay2":
		return backing == "xfs" && slices.ContainsFunc(mountOptions(root), func(o string) bool {
			return o == "prjquota" ||
				o == "pquota"
		})
	}
	return false
}

// mountOptions returns the options of the file system that holds path.
func mountOptions(path string) []string {
	f, err := os.Open("/proc/self/mounts")
	if err != nil {
		return nil
	}
	defer f.Close()
	best, options := "", ""
	for s := bufio.NewScanner(f); s.Scan(); {
		if m := strings.Fields(s.Text()); len(m) >= 4 && len(m[1]) >= len(best) {
			if rel, err := filepath.Rel(m[1], path); err == nil && !strings.HasPrefix(rel, "..") {
				best, options = m[1], m[3]
			}
		}
	}
	return strings.Split(options, ",")
}

var versionNumber = regexp.MustCompile(`\d+\.\d+\.\d+`)

func toolkitVersion(ctx context.Context) string {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	out, err := exec.CommandContext(ctx, "nvidia-ctk", "--version").Output()
	if err != nil {
		return ""
	}
	return versionNumber.FindString(string(out))
}

// versionLess compares dotted numbers.
func versionLess(a, b string) bool {
	as, bs := strings.Split(a, "."), strings.Split(b, ".")
	for i := range min(len(as), len(bs)) {
		x, _ := strconv.Atoi(as[i])
		y, _ := strconv.Atoi(bs[i])
		if x != y {
			return x < y
		}
	}
	return len(as) < len(bs)
}
