package container

import (
	"context"
	"errors"
	"strings"

	"github.com/moby/moby/client"

	"github.com/musterhq/muster/internal/agentapi"
)

// pinned ensures a workload on the processors that were chosen for it. Where the daemon may not have them (it runs in a
// smaller cpuset itself, or the kernel has none), the workload runs on any: its quota holds it, and it is only slower.
func (e *Engine) pinned(ctx context.Context, ref agentapi.LeaseRef,
	opts client.ContainerCreateOptions) (Container, error) {
	c, err := e.ensure(ctx, ref, Work, opts)
	if r := &opts.HostConfig.Resources; err == nil || r.CpusetCpus == "" || !cpusetRefused(err) {
		return c, err
	}
	e.cfg.Log.Warn("a workload cannot have the processors near its GPUs: it gets any", "lease", ref,
		"cpus", opts.HostConfig.CpusetCpus, "mems", opts.HostConfig.CpusetMems, "err", err)
	if err := e.Remove(ctx, ref, Work); err != nil { // it may be there, never started
		return Container{}, err
	}
	opts.HostConfig.CpusetCpus, opts.HostConfig.CpusetMems = "", ""
	return e.ensure(ctx, ref, Work, opts)
}

// cpusetRefused reports whether it is the set of processors or memory nodes that the daemon or its runtime refuses.
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
