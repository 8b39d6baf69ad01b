package container

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/system"

	"github.com/musterhq/muster/internal/agentapi"
)

// Runsc is gVisor as Docker knows it.
type Runsc struct {
	Name string   // what Docker calls the runtime
	Args []string // what it is run with
}

// runscOf finds gVisor among Docker's runtimes: by its name, or by its binary's.
func runscOf(runtimes map[string]system.RuntimeWithStatus) *Runsc {
	found := func(name string) *Runsc {
		return &Runsc{Name: name, Args: runtimes[name].Args}
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

// has reports whether a flag of runsc's has one of the values among its arguments: -flag=value, --flag=value; a flag
// without one is "true". The last one counts.
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

// lacks says what keeps gVisor from being offered, nil when nothing does. A workload shares its guest's network
// namespace, with the cluster's network in it: gVisor's own network stack would take the addresses away from the guest,
// so it must use the namespace's. Its init tells the guest by a socket in a folder that both mount, which gVisor opens
// only when it is told to. With GPUs it needs its passage to NVIDIA's driver. Whether that knows the driver's version,
// and that it works, is not looked at.
func (r *Runsc) lacks(gpus bool) *agentapi.Problem {
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

// Runtimes are the OCI runtimes a workload can ask for here, and what keeps gVisor from being one of them. gpus: the
// workload gets real ones.
func (f Facts) Runtimes(gpus bool) ([]string, []agentapi.Problem) {
	switch {
	case f.Version == "":
		return nil, nil // nothing is known
	case f.Runsc == nil:
		return []string{agentapi.RuntimeRunc}, nil
	}
	if p := f.Runsc.lacks(gpus); p != nil {
		return []string{agentapi.RuntimeRunc}, []agentapi.Problem{*p}
	}
	return []string{agentapi.RuntimeRunc, agentapi.RuntimeRunsc}, nil
}

// hold gives a workload the isolation that was asked for, as Docker has it at this moment (facts, from attachNow): it
// may have been set up otherwise since the host was chosen. A Refusal says what is not there.
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
		case facts.Runsc == nil:
			return Refusal{agentapi.ReasonNotOffered, "Docker here has no runtime runsc (gVisor)"}
		case !slices.Contains(offered, agentapi.RuntimeRunsc):
			return Refusal{agentapi.ReasonNotOffered, "runsc (gVisor) cannot be used here: " + lacking[0].Evidence}
		}
		hc.Runtime = facts.Runsc.Name
	}
	return nil
}

// sized is the storage option that holds a container to so many gigabytes.
func sized(gb int64) map[string]string { return map[string]string{"size": fmt.Sprintf("%dG", gb)} }
