package container

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/system"

	"github.com/musterhq/muster/internal/agentapi"
)

// Runsc is gVisor as configured in Docker.
type Runsc struct {
	Name string   // Docker's name of the runtime
	Path string   // its program; "" = not known
	Args []string // its arguments
	// Drivers are the versions of NVIDIA's driver that its driver proxy supports, by runsc's own list; Silent is why it
	// gives no list.
	Drivers []string
	Silent  string
}

// runscOf finds gVisor among Docker's runtimes: by its name, or by that of its binary.
func runscOf(runtimes map[string]system.RuntimeWithStatus) *Runsc {
	found := func(name string) *Runsc {
		return &Runsc{Name: name, Path: runtimes[name].Path, Args: runtimes[name].Args}
	}
	if _, ok := runtimes[agentapi.RuntimeRunsc]; ok {
		return found(agentapi.RuntimeRunsc)
	}
	for _, name := range slices.Sorted(maps.Keys(runtimes)) {
		if filepath.Base(runtimes[name].Path) == agentapi.RuntimeRunsc {
			return found(name)
		}
	}
	return nil
}

// listDrivers gets the versions of NVIDIA's driver that runsc's driver proxy supports. The proxy refuses every other
// version, when a program first uses a GPU.
func (r *Runsc) listDrivers(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	program := cmp.Or(r.Path, agentapi.RuntimeRunsc)
	out, err := exec.CommandContext(ctx, program, "nvproxy", "list-supported-drivers").Output()
	if err != nil {
		r.Silent = err.Error()
		return
	}
	r.Drivers = strings.Fields(string(out))
}

// loadedDriver returns the version of NVIDIA's loaded kernel module; "" without one.
func loadedDriver() string {
	b, err := os.ReadFile("/sys/module/nvidia/version")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

// has reports whether runsc's arguments give a flag one of the values: -flag=value, --flag=value; a flag without a
// value is "true". The last occurrence counts.
func (r *Runsc) has(flag string, values ...string) bool {
	on := false
	for _, arg := range r.Args {
		name, v, given := strings.Cut(strings.TrimLeft(arg, "-"), "=")
		if name == flag && strings.HasPrefix(arg, "-") {
			if !given {
				v = "true"
			}
			on = slices.Contains(values, v)
		}
	}
	return on
}

// lacks returns what keeps gVisor from being offered, nil if nothing does. A workload shares its guest's network
// namespace, which contains the cluster's network: gVisor's own network stack would take the addresses away from the
// guest, so gVisor must use the namespace's stack. The workload's init reports to the guest through a socket in a
// folder that both mount, which gVisor opens only if its flags allow it. With GPUs it needs its NVIDIA driver proxy
// (nvproxy), which must support the loaded driver.
func (r *Runsc) lacks(gpus bool, driver string) *agentapi.Problem {
	var missing []string
	if !r.has("network", "host") {
		missing = append(missing, "--network=host")
	}
	if !r.has("host-uds", "open", "all") && !r.has("fsgofer-host-uds", "true") { // its name until 2023
		missing = append(missing, "--host-uds=open")
	}
	if gpus && !r.has("nvproxy", "true") {
		missing = append(missing, "--nvproxy")
	}
	if len(missing) == 0 && gpus && !slices.Contains(r.Drivers, driver) {
		return r.unsupported(driver)
	}
	if len(missing) == 0 {
		return nil
	}
	return &agentapi.Problem{
		Code:     "runsc_not_usable",
		Severity: "warn",
		Cause:    "Docker has gVisor (runsc), but it is not offered: it could not run a node as it is set up.",
		Evidence: fmt.Sprintf("runtime %q runs with %q, without %s", r.Name, strings.Join(r.Args, " "),
			strings.Join(missing, " and ")),
		Fix: fmt.Sprintf("Add %s to its runtimeArgs in /etc/docker/daemon.json and reload Docker. --network=host is the "+
			"node's own network namespace, not this machine's; --nvproxy must support the driver.",
			strings.Join(missing, " and ")),
	}
}

// unsupported returns the problem of a driver that runsc's driver proxy does not support.
func (r *Runsc) unsupported(driver string) *agentapi.Problem {
	seen := fmt.Sprintf("driver %s; runsc nvproxy list-supported-drivers names %d others", driver, len(r.Drivers))
	if r.Silent != "" {
		seen = "runsc nvproxy list-supported-drivers: " + r.Silent
	}
	fix := "Update runsc, or install a driver that it supports."
	if len(r.Drivers) > 0 {
		fix += " The newest that it lists: " + r.Drivers[len(r.Drivers)-1] + "."
	}
	return &agentapi.Problem{
		Code:     "runsc_not_usable",
		Severity: "warn",
		Cause:    "gVisor (runsc) is not offered: its driver proxy does not support this NVIDIA driver.",
		Evidence: seen,
		Fix:      fix,
	}
}

// Runtimes returns the OCI runtimes that a workload can use here, and what keeps gVisor from being one of them. gpus
// means that the workload gets real GPUs.
func (f Facts) Runtimes(gpus bool) ([]string, []agentapi.Problem) {
	switch {
	case f.Version == "":
		return nil, nil // the facts are unknown
	case f.Runsc == nil:
		return []string{agentapi.RuntimeRunc}, nil
	}
	if p := f.Runsc.lacks(gpus, f.Driver); p != nil {
		return []string{agentapi.RuntimeRunc}, []agentapi.Problem{*p}
	}
	return []string{agentapi.RuntimeRunc, agentapi.RuntimeRunsc}, nil
}

// WithoutRunsc returns the OCI runtimes for AMD's GPUs: gVisor has no proxy for their driver.
func (f Facts) WithoutRunsc() []string {
	if f.Version == "" {
		return nil
	}
	return []string{agentapi.RuntimeRunc}
}

// hold gives a workload the isolation that its lease requires, as Docker has it at this moment (facts, from attachNow):
// Docker's configuration may have changed since the host was chosen. A Refusal names what is missing.
func (e *Engine) hold(facts Facts, attach Attach, lease agentapi.LeaseSpec, hc *container.HostConfig) error {
	if lease.DiskLimited {
		if !facts.DiskLimited {
			return Refusal{agentapi.ReasonNotOffered, "Docker here holds no container to a size (" + facts.StorageDriver +
				"): disk_gb cannot be enforced"}
		}
		hc.StorageOpt = sized(lease.DiskGB)
	}
	if lease.Runtime == agentapi.RuntimeRunsc {
		offered, lacking := facts.Runtimes(attach != AttachNone)
		switch {
		case attach == AttachNodes:
			return Refusal{agentapi.ReasonNotOffered, "runsc (gVisor) has no proxy for AMD's driver"}
		case facts.Runsc == nil:
			return Refusal{agentapi.ReasonNotOffered, "Docker here has no runtime runsc (gVisor)"}
		case !slices.Contains(offered, agentapi.RuntimeRunsc):
			return Refusal{agentapi.ReasonNotOffered, "runsc (gVisor) cannot be used here: " + lacking[0].Evidence}
		}
		hc.Runtime = facts.Runsc.Name
	}
	return nil
}

// sized returns the storage option that limits a container to gb gigabytes.
func sized(gb int64) map[string]string { return map[string]string{"size": fmt.Sprintf("%dG", gb)} }
