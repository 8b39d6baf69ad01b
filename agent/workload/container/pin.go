package container

import (
	"context"
	"errors"
	"strings"

	"github.com/moby/moby/client"

	"github.com/musterhq/muster/internal/agentapi"
)

// pinned creates a workload on the processors that were chosen for it. If the daemon may not use them (it runs in a
// smaller cpuset itself, or the kernel has none), the workload runs on any: its quota still limits it, and it is only
// slower.
func (e *Engine) pinned(ctx context.Context, ref agentapi.LeaseRef,
	opts client.ContainerCreateOptions) (Container, error) {
	c, err := e.ensure(ctx, ref, Work, opts)
	if r := &opts.HostConfig.Resources; err == nil || r.CpusetCpus == "" || !cpusetRefused(err) {
		return c, err
	}
	e.cfg.Log.Warn("a workload cannot have the processors near its GPUs: it gets any", "lease", ref,
		"cpus", opts.HostConfig.CpusetCpus, "mems", opts.HostConfig.CpusetMems, "err", err)
	if err := e.Remove(ctx, ref, Work); err != nil { // it may exist, never started
		return Container{}, err
	}
	opts.HostConfig.CpusetCpus, opts.HostConfig.CpusetMems = "", ""
	return e.ensure(ctx, ref, Work, opts)
}

// cpusetRefused reports whether the daemon or its runtime refuses the set of processors or memory nodes.
func cpusetRefused(err error) bool {
	var r Refusal
	if !errors.As(err, &r) {
		return false
	}
	text := strings.ToLower(r.Detail)
	for _, sign := range []string{"cpuset", "requested cpus are not available",
		"requested memory nodes are not available"} {
		if strings.Contains(text, sign) {
			return true
		}
	}
	return false
}
